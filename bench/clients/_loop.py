"""What every client does: take jobs from stdin, one a line, and tell what each took."""

import gc
import json
import sys
import time


def serve(jobs):
    """Runs jobs by name. What one gives is told beside its wall and CPU seconds."""
    for line in sys.stdin:
        asked = json.loads(line)
        gc.collect()
        cpu, started = time.process_time(), time.perf_counter()
        found = jobs[asked["do"]](**asked["with"])
        took, spent = time.perf_counter() - started, time.process_time() - cpu
        print(json.dumps({"wall_s": took, "cpu_s": spent, **found}), flush=True)
