"""The process that runs llama.cpp's own HTTP server; started by `server`, by path or with -m.

It reads one line of JSON from standard input (the fields of `launch.Launch` and the model's path),
loads the model, and writes one line with the server's address to standard output. Output of the C++
code goes to standard error. It ends on SIGTERM, and by itself when its parent is gone. It imports
nothing of ullage and knows nothing of conversations.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from typing import Any, NoReturn

_ORPHAN_CHECK_S = 1.0


def main() -> None:
    """Serve until SIGTERM or until the parent process is gone; exit code 1 if loading fails."""
    parent = os.getppid()
    # llama.cpp prints to both streams; only the address may reach the pipe that the parent reads.
    report = os.dup(1)
    os.dup2(2, 1)
    wishes = json.loads(_first_line())
    if wishes["parent"] != parent:
        sys.exit("ullage: the process that asked for this server is gone")
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
    server = _serve(wishes)
    os.write(report, f"{server.listening_address}\n".encode())
    os.close(report)
    # The wheel's server runs in threads of its own. SIGTERM keeps its default action, because an
    # orderly shutdown with a request in flight leaves the client hanging for 30 s or longer
    # (llama.cpp b11669), while a dead process closes every connection at once.
    threading.Event().wait()


def _first_line() -> bytes:
    """Read up to the newline without a buffer, so that the watch sees the end of the pipe."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit("ullage: standard input ended before the launch options came")
        line += byte
    return bytes(line)


def _leave_with_parent(parent: int) -> NoReturn:
    """Exit once the parent is gone.

    The pipe ends at once when the parent dies, unless the parent has forked: then the fork still
    holds the other end, and only the changed parent id shows it. PR_SET_PDEATHSIG would not work:
    it fires when the starting *thread* ends.
    """
    while os.getppid() == parent:
        ready, _, _ = select.select([0], [], [], _ORPHAN_CHECK_S)
        if ready and not os.read(0, 4096):
            break
    os._exit(0)


def _serve(wishes: dict[str, Any]) -> Any:  # the wheel has no types
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = wishes["model"]
    params.hostnames = ["127.0.0.1"]
    params.port = wishes["port"]
    params.n_ctx = wishes["window"]
    params.n_parallel = wishes["slots"]
    params.kv_unified = wishes["unified_pool"]
    # A small batch: a prompt whose client has gone is dropped only between batches. That took 14 to
    # 18 s on two cores with the default of 2048, and about one with 256.
    params.n_batch = params.n_ubatch = wishes["batch"]
    params.cpuparams.n_threads = wishes["threads"]
    # The window must be the requested one; "fit" may shrink it to the free memory.
    params.fit_params = False
    # The default keeps up to 8 GiB of old prompts in memory.
    params.cache_ram_mib = 0
    params.ui = False
    # The default lets every web page that is open on this machine read the answers.
    params.cors_origins = ""
    params.cors_origins_explicit = True
    params.endpoint_metrics = True
    # Warnings and errors only: the default writes several lines per request.
    params.verbosity = 2
    if wishes["trained"] is not None:
        kinds = xllamacpp.llama_rope_scaling_type
        params.rope_scaling_type = kinds.LLAMA_ROPE_SCALING_TYPE_YARN
        params.rope_freq_scale = 1 / wishes["stretch"]
        params.yarn_orig_ctx = wishes["trained"]
    if wishes["alias"] is not None:
        params.model_alias = {wishes["alias"]}
    if wishes["chat_template"] is not None:
        params.chat_template = wishes["chat_template"]
    if wishes["api_key"] is not None:
        params.api_keys = [wishes["api_key"]]
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        # The log above holds the cause; a traceback would push it out of the tail. llama.cpp writes
        # its log in a separate thread.
        time.sleep(0.5)
        sys.exit(f"ullage: {error}")


if __name__ == "__main__":
    main()
