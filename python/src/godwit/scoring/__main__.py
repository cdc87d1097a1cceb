"""The scoring service as a program: ``python -m godwit.scoring MODELS``."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from .._errors import GodwitError, MachineError
from ._service import DEFAULT_LISTEN, Service, serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m godwit.scoring", description="Serves models for scoring over Arrow Flight.")
    parser.add_argument("models", type=Path, metavar="MODELS", help="a model's file, or a directory with NAME.ubj or NAME/VERSION.ubj and the like")
    parser.add_argument(
        "--listen", default=DEFAULT_LISTEN, metavar="HOST:PORT", help=f"address; port 0 chooses a free port (default: {DEFAULT_LISTEN})"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="accept only clients that send the token in this file")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate and its chain, PEM; enables TLS")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="key of the certificate, PEM")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each model's library (default: chosen by the library)")
    parser.add_argument(
        "--trust-pickles", action="store_true", help="read models that are pickles (.joblib, .pkl), which can run any code when they are read"
    )
    parser.add_argument("--insecure", action="store_true", help="accept other machines without TLS, or without a token")
    args = parser.parse_args()
    stopped, changed = threading.Event(), threading.Event()

    def stop_service(*_: object) -> None:
        stopped.set()
        changed.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop_service)
    signal.signal(signal.SIGHUP, lambda *_: changed.set())
    try:
        with serve(
            args.models,
            args.listen,
            token=_read_token(args.token_file),
            tls_cert=args.tls_cert,
            tls_key=args.tls_key,
            threads=args.threads,
            trust_pickles=args.trust_pickles,
            insecure=args.insecure,
        ) as service:
            print(f"scoring by {_describe_service(service)} on {service.url}", flush=True)
            while changed.wait() and not stopped.is_set():
                changed.clear()
                print(f"reloaded: {service.reload()}", file=sys.stderr, flush=True)
    except GodwitError as error:
        print(f"godwit: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _describe_service(service: Service) -> str:
    return ", ".join(f"{one['model']}/{one['version']}" for one in service.models)


def _read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
    if not token:
        raise MachineError(f"{path} does not contain a token")
    return token


if __name__ == "__main__":
    sys.exit(main())
