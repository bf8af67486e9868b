import math


def invert(A, n, L, P):
    for i in range(n):
        for j in range(i + 1):
            t = A[i, j]
            for k in range(j):
                t -= L[i, k] * L[j, k]
            if i == j:
                if not t > 0.0:
                    return False
                L[i, i] = math.sqrt(t)
            else:
                L[i, j] = t / L[j, j]
    X = L.copy()
    for c in range(n):
        for i in range(n):
            t = 1.0 if i == c else 0.0
            for k in range(i):
                t -= L[i, k] * X[c, k]
            X[c, i] = t / L[i, i]
    for a in range(n):
        for b in range(n):
            t = 0.0
            for k in range(n):
                t += X[a, k] * X[b, k]
            P[a, b] = t
    return True
