"""Runs a program that a model wrote, and the tests for it; a script that `sandbox` starts in a process of its own.

Standard input holds the job as JSON: `preamble` (what the task had of the program, perhaps cut off), `program`, `test`,
`entry_point`, `token`, `limits` and `result`, the descriptor of the file that takes the outcome. The token is written
there once the tests have passed, and never otherwise.

The layers, from strongest to weakest: own namespaces for network and processes, where Linux permits them; limits of
the kernel; an audit hook, which the program cannot remove, but could get around with native code.
"""

import sys

if __name__ == "__main__":
    # the folder of this script holds modules of localspec, which the program must not find
    sys.path.pop(0)

import contextlib
import json
import os
from typing import Any

CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
SIGKILL = 9

#: what an audit event is called or begins with, if nothing of the kind is allowed
_REFUSED = (
    "socket.", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.kill", "subprocess.", "pty.",
    "ctypes.", "signal.pthread_kill", "resource.", "os.chroot", "os.setxattr",
)  # fmt: skip
#: events about files that are changed: the positions of their paths
_CHANGES = {
    "os.remove": (0,), "os.rmdir": (0,), "os.mkdir": (0,), "os.rename": (0, 1), "os.link": (0, 1),
    "os.symlink": (1,), "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,),
    "shutil.rmtree": (0,), "sqlite3.connect": (0,),
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def enter_namespaces() -> bool:
    """Leave the machine's network and processes for empty ones of this process's own; False where that is not
    permitted, or there is no such thing.

    The caller becomes a supervisor that lives as long as the new process, in which this returns: what that started
    dies with it.
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC
    try:
        if libc.unshare(flags) != 0:
            return False
    except AttributeError:
        return False
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(0 if status == 0 else 1)
    # the supervisor is killed at the end of the time
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    return True


def set_limits(limits: dict[str, int]) -> None:
    """Set the limits of the kernel, by their names in `resource`; those that this system lacks are left out."""
    import resource

    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for name, value in limits.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):
            kind = getattr(resource, name)
            _, most = resource.getrlimit(kind)
            least = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(kind, (least, least))


def guard(folder: str) -> None:
    """From here on this process gets a `PermissionError` for sockets, for other programs and processes, and for
    changes of files outside `folder`."""
    inside = os.path.realpath(folder) + os.sep
    realpath, isdir, fsdecode, join = os.path.realpath, os.path.isdir, os.fsdecode, os.path.join

    def allowed(path: Any) -> bool:
        if isinstance(path, int) or path == os.devnull:
            return True
        return (join(realpath(fsdecode(path)), "")).startswith(inside)

    def changes(event: str, path: Any) -> bool:
        # what is open may have been opened for reading, outside; a file is only shortened where it is open for writing
        return event == "os.truncate" if isinstance(path, int) else allowed(path)

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = values
            # an open folder takes the place of the current one, by dir_fd, of which events tell nothing
            refused = path is not None and (bool(flags & _WRITING) or isdir(path)) and not allowed(path)
        elif event in _CHANGES:
            refused = not all(changes(event, values[i]) for i in _CHANGES[event] if i < len(values))
        else:
            refused = event.startswith(_REFUSED)
        if refused:
            raise PermissionError(f"{event} is not allowed here")

    sys.addaudithook(hook)


def run(job: dict[str, Any]) -> str:
    """Run program and tests; the token when they passed, else one line on what happened."""
    names: dict[str, Any] = {"__name__": "answer"}
    token = job.pop("token")
    try:
        # it gives imports and helpers, and may end with a signature; the function has to come from the answer
        for end in ("\n", "\n    pass\n"):
            with contextlib.suppress(SyntaxError):
                exec(compile(job["preamble"] + end, "task.py", "exec"), names)
                break
        names.pop(job["entry_point"], None)
        # compiled here, as a nesting too deep may end the process
        exec(compile(job["program"], "answer.py", "exec"), names)
        exec(compile(job["test"], "test.py", "exec"), names)
        names["check"](names[job["entry_point"]])
    except BaseException as error:
        # SystemExit as well: the tests did not come to their end
        return f"{type(error).__name__}: {str(error)[:200]}"
    return str(token)


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    # reading finds an end, and the job is out of reach
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    result = job["result"]
    own = enter_namespaces()
    set_limits(job["limits"])
    guard(os.curdir)
    os.write(result, b"own\n" if own else b"shared\n")
    os.write(result, run(job).encode("utf-8", "replace"))
    os._exit(0)


if __name__ == "__main__":
    main()
