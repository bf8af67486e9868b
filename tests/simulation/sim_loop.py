"""One loop: all order and all time come from one seed, and one alone goes on at any moment.

Who is simulated is the project's own blocking code, so each has a stack to stand on: a thread that
does nothing until it is handed the word, and hands it on when it sleeps or waits. No clock is asked
and no two run at once, so that a seed tells all that happens.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any, ClassVar


class Killed(BaseException):
    """Raised where somebody stands who was killed: it does nothing more."""


class Stack:
    """A thread that fibers run on, one after the other."""

    idle: ClassVar[list[Stack]] = []

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.fiber: Fiber | None = None
        threading.Thread(target=self._go, daemon=True).start()

    def _go(self) -> None:
        while True:
            self.baton.acquire()
            assert self.fiber is not None
            handed = self.fiber.run()
            Stack.idle.append(self)
            handed.release()


class Process:
    """Somebody who is killed or paused as a whole."""

    def __init__(self, loop: Loop, name: str) -> None:
        self.loop, self.name = loop, name
        self.fibers: list[Fiber] = []
        self.dead = False
        self.paused_until = 0.0
        self.ends: list[Callable[[], None]] = []

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self.paused_until > self.loop.now

    def kill(self) -> None:
        """It does nothing more."""
        if self.dead:
            return
        self.dead = True
        for fiber in self.fibers:
            fiber.wake(0.0)
        for end in self.ends:
            end()

    def pause(self, seconds: float) -> None:
        """It stands still for so long, and knows nothing of it."""
        self.paused_until = max(self.paused_until, self.loop.now + seconds)


class Fiber:
    """A walk through some code; ``result`` or ``error`` when it has ended."""

    def __init__(self, process: Process, work: Callable[[], Any]) -> None:
        self.process, self._work = process, work
        self.result: Any = None
        self.error: Exception | None = None
        self.ended = False
        self.done = Signal(process.loop)
        self.turn = 0
        self._stack = Stack.idle.pop() if Stack.idle else Stack()
        self._stack.fiber = self
        self.baton = self._stack.baton
        process.fibers.append(self)
        self.wake(0.0)

    def run(self) -> Any:
        """On its stack: all of it; the baton of who comes next."""
        loop = self.process.loop
        loop.current = self
        try:
            if not self.process.dead:
                self.result = self._work()
        except Killed:
            pass
        except Exception as error:
            self.error = error
        except BaseException as error:
            loop.fail(error)
        self.ended = True
        self.process.fibers.remove(self)
        self.done.notify()
        loop.current = loop.next()
        return loop.current.baton

    def wake(self, seconds: float) -> None:
        """Have it go on in so long, unless it has gone on before."""
        turn = self.turn

        def due() -> Fiber | None:
            if self.ended or turn != self.turn:
                return None
            process = self.process
            if process.paused and not process.dead:
                process.loop.at(process.paused_until - process.loop.now, due)
                return None
            return self

        self.process.loop.at(seconds, due)


class Signal:
    """Something that fibers wait for."""

    def __init__(self, loop: Loop) -> None:
        self._loop, self._waiting = loop, list[tuple[Fiber, int]]()

    def notify(self) -> None:
        """Whoever waits goes on, and looks again."""
        for fiber, turn in self._waiting:
            if turn == fiber.turn:
                fiber.wake(0.0)
        self._waiting.clear()

    def wait(self, seconds: float) -> None:
        """Until it is notified, or so long; which of them, is for the caller to see."""
        fiber = self._loop.current
        self._waiting.append((fiber, fiber.turn))
        self._loop.sleep(seconds)


class Loop:
    """Time, order, and luck."""

    def __init__(self, seed: int, limit: float) -> None:
        self.draw = random.Random(seed)
        self.now, self.limit = 0.0, limit
        self.steps = 0
        self.failure: BaseException | None = None
        self.over = False
        self.baton = threading.Lock()  # the loop's own, as if it were a fiber
        self.baton.acquire()
        self.current: Any = self
        self.processes: list[Process] = []
        self._due: list[tuple[float, float, int, Callable[[], Fiber | None]]] = []
        self._number = itertools.count()

    def process(self, name: str) -> Process:
        """A new one."""
        self.processes.append(Process(self, name))
        return self.processes[-1]

    def at(self, seconds: float, act: Callable[[], Any]) -> None:
        """Have something happen in so long; what is due at once comes in any order."""
        due = (self.now + seconds, self.draw.random(), next(self._number), act)
        heapq.heappush(self._due, due)

    def sleep(self, seconds: float) -> None:
        """Of the fiber that asks."""
        me = self.current
        if me.process.dead:
            raise Killed
        me.wake(seconds)
        after = self.next()
        if after is not me:
            self.current = after
            after.baton.release()
            me.baton.acquire()
            self.current = me
        me.turn += 1
        if me.process.dead:
            raise Killed

    def next(self) -> Any:
        """Who goes on; before that, everything happens that is due before it does."""
        while not self.over:
            if not self._due:
                self.fail(AssertionError("nobody can go on"))
                break
            now, _, _, act = heapq.heappop(self._due)
            if now > self.limit:
                self.fail(AssertionError(f"it has not ended in {self.limit:,.0f} s"))
                break
            self.now, self.steps = max(self.now, now), self.steps + 1
            try:
                fiber = act()
            except Exception as error:
                self.fail(error)
                break
            if isinstance(fiber, Fiber):
                return fiber
        return self

    def fail(self, error: BaseException) -> None:
        """What is never to be has come to be."""
        self.failure = self.failure or error
        self.over = True

    def run(self) -> None:
        """Until it is over; then nobody stands anywhere any more. Raises what was failed with."""
        self._hand(self.next())
        for process in self.processes:
            process.dead = True
            for fiber in list(process.fibers):
                self._hand(fiber)
        if self.failure:
            raise self.failure

    def _hand(self, fiber: Any) -> None:
        if fiber is not self:
            self.current = fiber
            fiber.baton.release()
            self.baton.acquire()
        self.current = self
