"""Drives an unmodified deluged through its own RPC and reports as JSON lines.

argv[1] is a JSON object: {"dir", "save", "port", "user", "password"}. The
torrent is added when the file "source" appears in dir.
"""
import base64
import json
import os
import sys

from deluge.ui.client import client
from twisted.internet import defer, reactor, task

options = json.loads(sys.argv[1])
source_path = os.path.join(options["dir"], "source")
KEYS = ["is_finished", "total_done", "total_payload_upload", "total_payload_download", "num_peers", "num_seeds", "total_size"]


def pause(seconds):
    return task.deferLater(reactor, seconds, lambda: None)


@defer.inlineCallbacks
def main():
    for attempt in range(100):
        try:
            yield client.connect("127.0.0.1", options["port"], options["user"], options["password"])
            break
        except Exception as error:
            if attempt == 99:
                print("connect failed: %r" % error, file=sys.stderr, flush=True)
                reactor.stop()
                return
            yield pause(0.1)
    plugins = yield client.core.get_enabled_plugins()
    print(json.dumps({"ready": True, "plugins": list(plugins)}), flush=True)
    while not os.path.exists(source_path):
        yield pause(0.01)
    with open(source_path) as file:
        source = file.read()
    settings = {"download_location": options["save"]}
    if source.startswith("magnet:"):
        torrent = yield client.core.add_torrent_magnet(source, settings)
    else:
        with open(source, "rb") as file:
            data = base64.b64encode(file.read())
        torrent = yield client.core.add_torrent_file("t.torrent", data, settings)
    while True:
        status = yield client.core.get_torrent_status(torrent, KEYS)
        print(
            json.dumps(
                {
                    "done": 0 < status["total_size"] <= status["total_done"],
                    "bytes": status["total_done"],
                    "received": status["total_payload_download"],
                    "uploaded": status["total_payload_upload"],
                    "peers": status["num_peers"] + status["num_seeds"],
                    "bans": 0,
                }
            ),
            flush=True,
        )
        yield pause(0.1)


@defer.inlineCallbacks
def guarded():
    try:
        yield main()
    except Exception as error:
        print("failed: %r" % error, file=sys.stderr, flush=True)
        reactor.stop()


reactor.callWhenRunning(guarded)
reactor.run()
