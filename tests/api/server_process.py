"""A running `stet serve`, spoken to over plain HTTP."""

import contextlib
import http.client
import json
import pathlib
import signal
import subprocess

from conftest import LIMIT_S, STET


class Server:
    def __init__(self, process, log):
        self.process = process
        line = process.stdout.readline().decode().strip()
        assert line.startswith("http://"), (line, process.poll(), log.read_text())
        self.url = line
        self.host, port = line.removeprefix("http://").rsplit(":", 1)
        self.port = int(port)

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=LIMIT_S)

    def request(self, method, path, body=None, headers=None):
        """Status and JSON (or text) of the answer."""
        with contextlib.closing(self.connect()) as connection:
            text = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
            connection.request(method, path, text, headers or {})
            response = connection.getresponse()
            data = response.read()
            if response.headers.get("Content-Type", "").startswith("application/json"):
                return response.status, json.loads(data)
            return response.status, data.decode()

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        status, answer = self.request("POST", path, body, **options)
        assert status == 200, answer
        return answer

    def events(self, path, body, headers=None):
        """The data of a stream's events, in order."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", path, json.dumps(body), headers or {})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["Content-Type"].startswith("text/event-stream")
            lines = response.read().decode().splitlines()
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]

    def complete(self, prompt, count=16, **more):
        body = {"prompt": prompt, "n_predict": count, "temperature": 0, "return_tokens": True}
        return self.post("/completion", {**body, **more})

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=LIMIT_S)

    def kill(self):
        self.process.kill()
        self.process.wait()


def launch(model, store, environment, *arguments):
    path = pathlib.Path(f"{store}.log")
    with open(path, "ab") as log:
        process = subprocess.Popen(
            [STET, "serve", model, "--port", "0", "--store", store, "-c", "2048",
             *map(str, arguments)],
            env=environment, stdout=subprocess.PIPE, stderr=log)
    return Server(process, path)
