import math
from streamomd.losses.logistic import sigmoid
def sq(m, chi, y, h, p):
    return -h*(m-y)/(1.0+h*chi), h
def lo(m, chi, y, h, p):
    a = y*m
    E = sigmoid(-a); X=h*chi; lo_=0.0; hi=E; q=E/(1.0+0.25*X)
    if X>0.0:
        for _ in range(200):
            pr = sigmoid(-(a+X*q)); f=q-pr
            if f>0: hi=q
            else: lo_=q
            nq=q-f/(1.0+X*pr*(1.0-pr))
            if not (lo_<nq<hi): nq=0.5*(lo_+hi)
            if abs(nq-q)<=1e-14*nq:
                q=nq; break
            q=nq
    d=X*q
    return y*h*q, h*E*(1.0-q)*(-math.expm1(-d)/d if d>0 else 1.0)
def make_solve(loss):
    return sq if loss.name=="square" else lo
