"""Small backends for the tests of the worker process."""

import os
import time


class Echo:
    """Answers every payload's text after its ``steps``; special texts do special things."""

    def __init__(self, greeting="hello", threads=0):
        self.info = {"greeting": greeting, "pid": os.getpid(), "omp": os.environ["OMP_NUM_THREADS"]}
        self.jobs, self.largest, self.cancelled = {}, 0, []

    def submit(self, request, payload):
        self.jobs[request] = payload

    def cancel(self, request):
        self.cancelled.append(request)
        self.jobs.pop(request, None)

    def busy(self):
        return bool(self.jobs)

    def step(self):
        self.largest = max(self.largest, len(self.jobs))
        time.sleep(0.01)
        for request, payload in list(self.jobs.items()):
            text = payload["text"]
            if text == "die":
                print("something about the end", flush=True)
                os._exit(7)
            if text == "raise":
                raise ValueError("the backend broke")
            payload["steps"] = payload.get("steps", 1) - 1
            if payload["steps"] > 0:
                continue
            del self.jobs[request]
            if text == "refuse":
                yield request, {"error": "refused"}
            else:
                state = {"largest": self.largest, "cancelled": len(self.cancelled)}
                yield request, {"text": text, "pid": os.getpid(), **state}


class Unloadable:
    def __init__(self):
        raise RuntimeError("the model file is damaged")
