"""A container backend of miniwdl that runs tasks as processes of this host, with the programs of its PATH.

`MINIWDL__SCHEDULER__CONTAINER_BACKEND=host` selects it. It isolates nothing: `runtime.docker` is ignored, and a task can access all files
of the user. It runs a task once: `maxRetries` and `preemptible` are ignored.
"""

import os

from WDL.runtime.backend.cli_subprocess import SubprocessBase


class HostBackend(SubprocessBase):
    """A task as a process in its working directory, in which inputs are symbolic links."""

    cli_name = "host"

    @classmethod
    def global_init(cls, cfg, logger):
        """Does nothing: there is no runtime to start."""

    def __init__(self, cfg, run_id, host_dir):
        super().__init__(cfg, run_id, host_dir)
        # Paths "in the container" are paths of the host.
        self.container_dir = self.host_dir

    def process_runtime(self, logger, runtime_eval):
        super().process_runtime(logger, runtime_eval)
        for name in ("maxRetries", "preemptible"):
            self.runtime_values.pop(name, None)

    def _pull(self, logger, cleanup):
        return ""

    def _run_invocation(self, logger, cleanup, image):
        if self._bind_input_files:
            for path, link in self.input_path_map.items():
                os.makedirs(os.path.dirname(link.rstrip("/")), exist_ok=True)
                os.symlink(path.rstrip("/"), link.rstrip("/"))
        # The base class names the command and its outputs relative to the working directory.
        return ["env", "--chdir", self.host_work_dir()]
