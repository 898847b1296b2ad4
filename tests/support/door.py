"""The door for SuperNodes that docs/flower.md puts before a SuperLink: nginx where it is installed, else a stand-in."""

import contextlib
import http.client
import posixpath
import re
import shutil
import ssl
import subprocess
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length", "host"}


@contextlib.contextmanager
def door(text, folder, port, superlink):
    """Open a door as this block of nginx's configuration says, on another port and to another SuperLink."""
    here = re.sub(r"certificates/", f"{folder}/certificates/", text)
    here = here.replace("listen 9092", f"listen 127.0.0.1:{port}").replace("127.0.0.1:8000", f"127.0.0.1:{superlink}")
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    with _nginx(nginx, here, folder) if nginx else _stand_in(here, folder, port, superlink):
        yield


@contextlib.contextmanager
def _nginx(program, text, folder):
    whole = f"daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; events {{}}\n"
    whole += f"http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
    whole += f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n{text}}}\n"
    (folder / "nginx.conf").write_text(whole)
    process = subprocess.Popen([program, "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextlib.contextmanager
def _stand_in(text, folder, port, superlink):
    allowed = [
        place for place, rule in re.findall(r"location (\S+) \{(.*?)\}", text, re.DOTALL) if "proxy_pass" in rule
    ]
    assert allowed == ["/v1/fleet/"], allowed
    trust = ssl.create_default_context(cafile=str(folder / "certificates" / "ca.pem"))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not posixpath.normpath(urllib.parse.unquote(self.path)).startswith(tuple(allowed)):  # as nginx does
                self._answer(403, {}, b"")
                return
            behind = http.client.HTTPSConnection("localhost", superlink, context=trust, timeout=3600)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
            behind.request("POST", self.path, body, headers)
            reply = behind.getresponse()
            self._answer(reply.status, dict(reply.getheaders()), reply.read())
            behind.close()

        do_GET = do_POST  # noqa: N815

        def _answer(self, status, headers, body):
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(folder / "certificates" / "server.pem", folder / "certificates" / "server.key")
    server.socket = own.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
