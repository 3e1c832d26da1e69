"""Says what its configuration says: a Flask application that reads it once, when it starts."""

import signal
import sys

# Without a handler SIGTERM does nothing to the first process of a container, and every pod would be killed only after its grace
# period. Set before the other imports, which are most of the start: a pod may be told to end as soon as it begins.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())

from flask import Flask, Response  # noqa: E402
from waitress import serve  # noqa: E402

CONFIG = "/config/config.cfg"


def create_app():
    app = Flask(__name__)
    try:
        app.config.from_pyfile(CONFIG)
    except OSError as error:
        sys.exit(f"error: {CONFIG}: {error.strerror}")
    except Exception as error:  # The file is Python, and can fail in any way.
        sys.exit(f"error: {CONFIG}: {type(error).__name__}: {error}")
    message = app.config.get("MSG")
    if not isinstance(message, str):
        sys.exit(f"error: {CONFIG}: MSG is missing, or is not text")

    @app.get("/")
    def index():
        return Response(f"{message}\n", mimetype="text/plain")

    @app.get("/healthz")
    def healthz():
        return Response("ok\n", mimetype="text/plain")

    return app


if __name__ == "__main__":
    # No request needs a body, and waitress would put a large one into a file, which a read-only file system does not take.
    serve(create_app(), host="0.0.0.0", port=8080, max_request_body_size=1)
