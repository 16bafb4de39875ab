"""Writes a Deluge plugin that turns uTP off: Deluge has no such key of its own.

argv[1] is the plugin directory. The plugin sets two libtorrent settings through
Deluge's plugin interface, as the ltConfig plugin does; the daemon is unchanged.
"""
import sys
import zipfile

MODULE = '''
from deluge import component
from deluge.core.rpcserver import export
from deluge.plugins.pluginbase import CorePluginBase
from deluge.plugins.init import PluginInitBase


class Core(CorePluginBase):
    def enable(self):
        component.get("Core").session.apply_settings(
            {"enable_outgoing_utp": False, "enable_incoming_utp": False}
        )

    def disable(self):
        pass

    def update(self):
        pass


class CorePlugin(PluginInitBase):
    def __init__(self, plugin_name):
        self._plugin_cls = Core
        super().__init__(plugin_name)
'''
version = "%d.%d" % sys.version_info[:2]
with zipfile.ZipFile("%s/NoUtp-1.0-py%s.egg" % (sys.argv[1], version), "w") as egg:
    egg.writestr("EGG-INFO/PKG-INFO", "Metadata-Version: 1.0\nName: NoUtp\nVersion: 1.0\n")
    egg.writestr("EGG-INFO/entry_points.txt", "[deluge.plugin.core]\nNoUtp = noutp:CorePlugin\n")
    egg.writestr("EGG-INFO/top_level.txt", "noutp\n")
    egg.writestr("EGG-INFO/zip-safe", "\n")
    egg.writestr("noutp/__init__.py", MODULE)
