"""Runs one libtorrent session by its Python binding and reports as JSON lines.

argv[1] is a JSON object: {"listen", "dir", "save", "mode", "blocked",
"settings"}; mode is "tcp"
(plaintext TCP), "utp" (plaintext uTP) or "seed" (accepts everything, dials
plaintext TCP). The torrent is added when the file "source" appears in dir.
"""
import json
import os
import sys
import time

import libtorrent as lt

options = json.loads(sys.argv[1])
settings = {
    "listen_interfaces": options["listen"],
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "allow_multiple_connections_per_ip": False,
    "unchoke_slots_limit": -1,
    "out_enc_policy": int(lt.enc_policy.pe_disabled),
}
if options["mode"] == "tcp":
    settings.update(
        in_enc_policy=int(lt.enc_policy.pe_disabled),
        enable_outgoing_utp=False,
        enable_incoming_utp=False,
    )
elif options["mode"] == "utp":
    settings.update(enable_outgoing_tcp=False, enable_incoming_tcp=False)
else:
    settings.update(
        in_enc_policy=int(lt.enc_policy.pe_enabled),
        enable_outgoing_utp=False,
        max_allowed_in_request_queue=4000,
    )
settings.update(options["settings"])
session = lt.session(settings)
if options["blocked"]:
    blocked = lt.ip_filter()
    for address in options["blocked"]:
        blocked.add_rule(address, address, 1)
    session.set_ip_filter(blocked)

source_path = os.path.join(options["dir"], "source")
print(json.dumps({"ready": True}), flush=True)
while not os.path.exists(source_path):
    time.sleep(0.01)
with open(source_path) as file:
    source = file.read()
if source.startswith("magnet:"):
    params = lt.parse_magnet_uri(source)
else:
    params = lt.add_torrent_params()
    params.ti = lt.torrent_info(source)
params.save_path = options["save"]
handle = session.add_torrent(params)

bans = 0
session.apply_settings({"alert_mask": int(lt.alert.category_t.error_notification) | int(lt.alert.category_t.peer_notification)})
while True:
    for alert in session.pop_alerts():
        if type(alert).__name__ in ("peer_ban_alert", "hash_failed_alert"):
            bans += 1
            print(json.dumps({"event": alert.message()}), file=sys.stderr, flush=True)
    status = handle.status()
    print(
        json.dumps(
            {
                "done": bool(status.is_seeding) or (bool(status.has_metadata) and status.progress >= 1.0),
                "bytes": status.total_done,
                "received": status.total_payload_download,
                "uploaded": status.total_payload_upload,
                "peers": status.num_peers,
                "bans": bans,
            }
        ),
        flush=True,
    )
    time.sleep(0.1)
