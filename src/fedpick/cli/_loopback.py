"""A loopback of one's own, on Linux: what listens there no other user of the machine can reach.

Flower's SuperLink takes apps to run from whoever reaches its port; in open source it knows no accounts. TLS and the
keys of SuperNodes do not change that, and permissions of files do not apply to ports. A network namespace does.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
SHARED = ["it was not asked for"]  # why this process has the loopback of everybody; empty where it has its own


def take_loopback() -> None:
    """Give this process, and those that it starts, a loopback of their own; ``SHARED`` says why that was not possible.

    It must have no threads yet. It keeps its user and its files, and loses every other network: only a process that is
    there for the command alone does that.
    """
    if not SHARED or sys.argv[1:2] != ["federate"]:
        return
    if not sys.platform.startswith("linux"):
        SHARED[:] = [f"{sys.platform} has no network namespaces"]
        return
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # tries it, because half of it cannot be undone
        why = _enter()
        os.write(writing, why.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        why = answer.read().decode()
    os.waitpid(child, 0)
    SHARED[:] = [why] if why or (why := _enter()) else []


def _enter() -> str:
    """Enter new namespaces of users and of networks; why not, or nothing."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        return f"unshare: {os.strerror(ctypes.get_errno())}"
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            file = os.open(f"/proc/self/{name}", os.O_WRONLY)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP | IFF_RUNNING))
    except OSError as error:
        return str(error)
    return ""
