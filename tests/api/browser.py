"""Chromium without a window, driven through its debugging pipe (messages end with a zero byte)."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium")


class Browser:
    def __init__(self, width, height):
        assert CHROMIUM, "chromium is not installed"
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = (f'exec 3<&{to_read} 4>&{to_write}; exec "$0" --headless=new --no-sandbox '
                   f"--disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe "
                   f"--user-data-dir={self.folder.name} about:blank")
        self.process = subprocess.Popen(["bash", "-c", command, CHROMIUM],
                                        pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.held = b""
        self.number = 0
        self.problems = []
        self.requests = []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def receive(self):
        while b"\0" not in self.held:
            part = os.read(self.back, 1 << 20)
            assert part, "the browser ended"
            self.held += part
        text, self.held = self.held.split(b"\0", 1)
        message = json.loads(text)
        kind = message.get("method")
        if kind == "Runtime.exceptionThrown":
            self.problems.append(message["params"]["exceptionDetails"])
        elif kind == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"])
        elif kind == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        return message

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition, limit_s=60):
        deadline = time.monotonic() + limit_s
        while not self.run(condition):
            assert time.monotonic() < deadline, (condition, self.problems)
            time.sleep(0.05)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()
