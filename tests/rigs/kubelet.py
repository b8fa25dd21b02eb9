"""A stand-in for kubelets: runs pods as processes of this machine, each in mount and process namespaces of its own.

A pod sees this machine's files, with its volumes where its manifest mounts them, a /dev, a /proc and an /etc/hosts of
its own, and has an address of the loopback network, which is all of 127.0.0.0/8: so ports of two pods never clash.
"""

from __future__ import annotations

import base64
import itertools
import os
import select
import signal
import subprocess
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from rigs.kube_store import ApiError, Object, Store, event, now_text

HOSTS = "127.0.0.1 localhost\n"
_ROOT = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$1"
for path in /*; do
    name=$(basename "$path")
    case $name in proc|dev|muster) continue ;; esac
    if [ -L "$path" ]; then cp -a "$path" "$1/$name"
    elif [ -d "$path" ]; then mkdir "$1/$name"; mount --rbind "$path" "$1/$name"; fi
done
mkdir -p "$1/proc" "$1/dev/shm" "$1/muster"
for name in null zero full random urandom tty; do touch "$1/dev/$name"; mount --bind "/dev/$name" "$1/dev/$name"; done
touch "$1/dev/termination-log"
ln -s /proc/self/fd "$1/dev/fd"
mkdir "$1/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
echo ready
exec sleep 2147483647
"""

_ENTER = """
set -e
root=$1; shift
while [ "$1" != -- ]; do
    [ -d "$1" ] && mkdir -p "$2"
    mount --bind "$1" "$2"
    shift 2
done
shift
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
"""


class Kubelets:
    """All nodes' kubelets. `folder` holds volumes and output of containers."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.dead: set[str] = set()  # nodes whose kubelet does not answer
        self.errors: list[str] = []
        self._pods: dict[str, _Pod] = {}  # by uid
        self._addresses = itertools.count(256)
        self._closing = threading.Event()
        self._holder: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)

    def start(self) -> None:
        root = self.folder / "root"
        root.mkdir(parents=True)
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ROOT, "sh", str(root)]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n"
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(180)
        for pod in list(self._pods.values()):
            pod.kill()
        for pod in list(self._pods.values()):
            pod.thread.join(180)
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            assert self._holder.stdout is not None
            self._holder.stdout.close()

    def kill_node(self, name: str) -> None:
        """The machine dies: nothing more is heard of it, and what ran there is dead."""
        self.dead.add(name)
        for pod in list(self._pods.values()):
            if pod.node == name:
                pod.kill()
        set_ready(self.store, name, "Unknown", "Kubelet stopped posting node status.")

    def restore(self) -> None:
        """All nodes are back, as after a reboot: of the pods that they had, nothing runs."""
        for name in list(self.dead):
            self.dead.discard(name)
            for pod in self.store.list("Pod", fields=f"spec.nodeName={name}"):
                known = self._pods.get(pod["metadata"]["uid"])
                if known is not None:
                    known.report_end(137, "Error")
            set_ready(self.store, name, "True", "kubelet is posting ready status")

    def end_container(self, pod: Object, reason: str) -> None:
        """The kernel or the kubelet kills a container; `reason` is what the kubelet says of it, such as OOMKilled."""
        known = self._pods[pod["metadata"]["uid"]]
        known.why = reason
        known.kill()

    def _run(self) -> None:
        version = 0
        while not self._closing.is_set():
            version = self.store.wait(version, 0.1)
            try:
                self._look()
            except Exception:
                self.errors.append(traceback.format_exc())

    def _look(self) -> None:
        present = set()
        for pod in self.store.list("Pod"):
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            present.add(uid)
            if not node or node in self.dead:
                continue
            if uid not in self._pods and not pod["metadata"].get("deletionTimestamp"):
                number = next(self._addresses)
                address = f"127.{1 + number // 65536}.{number // 256 % 256}.{number % 256}"
                made = self._pods[uid] = _Pod(self, pod, address)
                made.thread.start()
            elif pod["metadata"].get("deletionTimestamp"):
                known = self._pods.get(uid)
                if known is None or known.ended.is_set():
                    self._finish(pod)
                else:
                    known.leave(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        for uid in self._pods.keys() - present:
            if self._pods[uid].ended.is_set():
                del self._pods[uid]
            else:
                self._pods[uid].kill()

    def _finish(self, pod: Object) -> None:
        about = pod["metadata"]
        try:
            self.store.delete("Pod", about["namespace"], about["name"], {"gracePeriodSeconds": 0})
        except ApiError:
            pass

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def holder(self) -> int:
        assert self._holder is not None
        return self._holder.pid


class _Pod:
    def __init__(self, kubelets: Kubelets, pod: Object, address: str) -> None:
        self.kubelets, self.pod, self.address = kubelets, pod, address
        self.node = pod["spec"]["nodeName"]
        self.folder = kubelets.folder / "pods" / pod["metadata"]["uid"]
        self.ended = threading.Event()
        self.why = ""
        self.thread = threading.Thread(target=self._live, name=f"pod-{pod['metadata']['name']}", daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._leave = threading.Event()
        self._kill_at = float("inf")
        self._killed = False

    def leave(self, grace: float) -> None:
        """SIGTERM, once, and SIGKILL when the grace is over."""
        if not self._leave.is_set():
            self._leave.set()
            self._signal(signal.SIGTERM)
        self._kill_at = min(self._kill_at, time.monotonic() + grace)
        if time.monotonic() >= self._kill_at:
            self.kill()

    def kill(self) -> None:
        self._killed = True
        self._signal(signal.SIGKILL)

    def report_end(self, code: int, reason: str) -> None:
        log = self.folder / "termination-log"
        message = log.read_text() if log.exists() else ""
        state = {
            "exitCode": code,
            "reason": reason,
            "finishedAt": now_text(),
            **({"message": message} if message else {}),
        }
        self._say("Succeeded" if code == 0 else "Failed", {"terminated": state})

    # --- its life ----------------------------------------------------------------------------------------------------
    def _live(self) -> None:
        try:
            container = self.pod["spec"]["containers"][0]
            if container["image"].startswith("missing/"):
                self._cannot_pull(container["image"])
                return
            mounts = self._volumes()
            if mounts is not None and not self._killed and not self._leave.is_set():
                self._start(container, mounts)
                self._wait()
            elif self._leave.is_set():
                self._say("Failed", {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}})
        except Exception:
            self.kubelets.errors.append(traceback.format_exc())
        finally:
            self.ended.set()
            found = self.kubelets.store.find("Pod", self.pod["metadata"]["namespace"], self.pod["metadata"]["name"])
            if found is not None and found["metadata"].get("deletionTimestamp") and self.node not in self.kubelets.dead:
                self.kubelets._finish(found)

    def _wait(self) -> None:
        assert self._process is not None
        end = os.pidfd_open(self._process.pid)  # `Popen.wait` would look twenty times a second, for hundreds of pods
        ends = select.poll()
        ends.register(end, select.POLLIN)
        while self._process.poll() is None:
            ends.poll(1000 * max(0.05, min(1.0, self._kill_at - time.monotonic())))
            if time.monotonic() >= self._kill_at:
                self.kill()
        os.close(end)
        code = self._process.returncode
        code = code if code >= 0 else 128 - code
        if self.node not in self.kubelets.dead:
            self.report_end(code, self.why or ("Completed" if code == 0 else "Error"))

    def _cannot_pull(self, image: str) -> None:
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": not found'}
        self._say("Pending", {"waiting": waiting})
        self._leave.wait()

    def _volumes(self) -> list[tuple[Path, str]] | None:
        """Host folder and mount path of each; None when the pod was told to go before all were there."""
        namespace = self.pod["metadata"]["namespace"]
        sources: dict[str, Path] = {}
        for volume in self.pod["spec"].get("volumes") or []:
            folder = self.folder / "volumes" / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            if "hostPath" in volume:
                folder = Path(volume["hostPath"]["path"])
            elif "secret" in volume or "configMap" in volume:
                kind, name = ("Secret", volume["secret"]["secretName"]) if "secret" in volume else (
                    "ConfigMap", volume["configMap"]["name"])  # fmt: skip
                content = self._content(kind, namespace, name)
                if content is None:
                    return None
                for key, data in content.items():
                    (folder / key).write_bytes(data)
            sources[volume["name"]] = folder
        mounts = self.pod["spec"]["containers"][0].get("volumeMounts") or []
        return [(sources[mount["name"]], mount["mountPath"]) for mount in mounts]

    def _content(self, kind: str, namespace: str, name: str) -> dict[str, bytes] | None:
        told = False
        while (found := self.kubelets.store.find(kind, namespace, name)) is None:
            if not told:
                event(
                    self.kubelets.store,
                    self.pod,
                    "FailedMount",
                    f'MountVolume.SetUp failed: {kind.lower()} "{name}" not found',
                )
                told = True
            if self._leave.wait(0.1) or self._killed:
                return None
        binary = {**(found.get("data") or {} if kind == "Secret" else {}), **(found.get("binaryData") or {})}
        plain = found.get("data") or {} if kind == "ConfigMap" else {}
        return {**{k: base64.b64decode(v) for k, v in binary.items()}, **{k: v.encode() for k, v in plain.items()}}

    def _start(self, container: Object, mounts: list[tuple[Path, str]]) -> None:
        (self.folder / "termination-log").touch()
        root = self.kubelets.root
        mounts = [*mounts, (self._hosts(), "/etc/hosts"), (self.folder / "termination-log", "/dev/termination-log")]
        words: list[str] = [str(root)]
        for source, target in mounts:
            words += [str(source), f"{root}{target}"]
        inner = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c"]
        command = [*inner, _ENTER, "sh", *words, "--", *container["command"], *(container.get("args") or [])]
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                ["nsenter", f"--mount=/proc/{self.kubelets.holder}/ns/mnt", "--", *command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self._environment(container), cwd="/",
                start_new_session=True,
            )  # fmt: skip
        self._say("Running", {"running": {"startedAt": now_text()}})
        if self._killed or self._leave.is_set():
            self._signal(signal.SIGKILL if self._killed else signal.SIGTERM)

    def _hosts(self) -> Path:
        """What cluster DNS would say of the pods of one headless service: they share the file."""
        spec, space = self.pod["spec"], self.pod["metadata"]["namespace"]
        service = spec.get("subdomain") or self.pod["metadata"]["uid"]
        path = self.kubelets.folder / "hosts" / f"{space}.{service}"
        path.parent.mkdir(parents=True, exist_ok=True)
        name = spec.get("hostname") or self.pod["metadata"]["name"]
        line = f"{self.address} {name}.{service} {name}.{service}.{space}.svc.cluster.local {name}\n"
        with path.open("a") as file:
            file.write(line if file.tell() else HOSTS + line)
        return path

    def _environment(self, container: Object) -> dict[str, str]:
        """The image's, which stands for this machine's, and what the manifest says."""
        made = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "HOSTNAME": self.pod["spec"].get("hostname", ""),
        }
        for one in container.get("env") or []:
            made[one["name"]] = self._field(one["valueFrom"]) if "valueFrom" in one else one.get("value", "")
        return made

    def _field(self, source: Object) -> str:
        path = source["fieldRef"]["fieldPath"]
        if "[" in path:
            where, key = path.split("['")
            found: Any = self.pod
            for name in where.split("."):
                found = found[name]
            return str(found[key.rstrip("']")])
        simple = {"status.podIP": self.address, "status.hostIP": "127.0.0.1"}
        found = self.pod
        for name in path.split("."):
            found = found.get(name, {})
        return simple.get(path) or str(found)

    def _signal(self, number: signal.Signals) -> None:
        """To the first process of the container; before there is one, to what makes it."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        try:
            below = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(below[0]) if below else process.pid, number)
        except (OSError, ProcessLookupError):
            pass

    def _say(self, phase: str, state: Object) -> None:
        container, ready = self.pod["spec"]["containers"][0], "running" in state
        status = {
            "name": container["name"],
            "image": container["image"],
            "ready": ready,
            "restartCount": 0,
            "state": state,
        }

        def change(pod: Object) -> None:
            if pod["status"].get("phase") in ("Succeeded", "Failed"):
                return
            pod["status"].update(phase=phase, podIP=self.address, containerStatuses=[status])
            pod["status"].setdefault("startTime", now_text())
            if self.why in ("Evicted",):
                pod["status"].update(reason="Evicted", message="The node was low on resource: memory.")

        self.kubelets.store.edit(
            "Pod", self.pod["metadata"]["namespace"], self.pod["metadata"]["name"], change, "kubelet"
        )


def set_ready(store: Store, name: str, status: str, message: str) -> None:
    """A node's condition, and the taint that goes with it."""

    def change(node: Object) -> None:
        conditions = [c for c in node["status"].get("conditions") or [] if c["type"] != "Ready"]
        told = {
            "type": "Ready",
            "status": status,
            "reason": "Kubelet",
            "message": message,
            "lastTransitionTime": now_text(),
        }
        node["status"]["conditions"] = [*conditions, told]
        taints = [
            t for t in node["spec"].get("taints") or [] if not t["key"].startswith("node.kubernetes.io/unreachable")
        ]
        if status != "True":
            taints.append({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"})
        node["spec"]["taints"] = taints

    store.edit("Node", "", name, change, "kube-controller-manager")
