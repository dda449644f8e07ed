"""A bundle of scripts/gpu_bundle.sh, unpacked and run in a root that holds nothing but a C library,
bash and Python 3. Ends with status 77 where this process may not have a root of its own."""
import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SKIPPED = 77
STEPS = ["device", "micro", "long_context", "tests"]  # of each program of the archive
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, flags):
    if libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))


def enter(root):
    """The calling process' own root, with /proc and /dev of the machine."""
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")
    mount("none", "/", MS_REC | MS_PRIVATE)
    for name in ("proc", "dev"):
        mount(f"/{name}", root / name, MS_BIND | MS_REC)
    os.chroot(root)
    os.chdir("/")


def may_enter():
    folder = Path(tempfile.mkdtemp())
    for name in ("proc", "dev"):
        (folder / name).mkdir()
    child = os.fork()
    if child == 0:
        try:
            enter(folder)
            os._exit(0)
        except OSError as e:
            print(f"skipped: {e}")
            os._exit(1)
    able = os.waitpid(child, 0)[1] == 0
    shutil.rmtree(folder)
    return able


def bare_root(root):
    """bash, Python with its library, and the shared libraries that these two need."""
    for name in ("proc", "dev", "tmp", "results", "usr/bin", "bin"):
        (root / name).mkdir(parents=True)
    python = Path(os.path.realpath(sys.executable))
    shutil.copy("/bin/bash", root / "bin")
    shutil.copy(python, root / "usr/bin/python3")
    library = Path(sysconfig.get_path("stdlib"))
    # zlib unpacks the archive; where it is no part of the interpreter it is a module of its own.
    for source in ["/bin/bash", python, *library.glob("lib-dynload/zlib.*.so")]:
        for path in re.findall(r"(/\S+) \(0x", subprocess.run(
                ["ldd", source], capture_output=True, text=True, check=True).stdout):
            target = root / path[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    shutil.copytree(library, root / library.relative_to("/"), ignore=shutil.ignore_patterns(
        "__pycache__", "test", "tests", "dist-packages", "site-packages", "idlelib", "config-*"))
    held = {p.name for p in root.rglob("*.so*")}
    for absent in ("libstdc++.so.6", "libgomp.so.1", "libcrypto.so.3", "libdnnl.so.2"):
        assert absent not in held, f"the bare root holds {absent}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True, help="root of the project")
    parser.add_argument("--build", required=True, help="an emulated build")
    args = parser.parse_args()
    if not may_enter():
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        bare_root(root)
        archive = root / "tmp" / "bundle.tar.gz"
        subprocess.run([Path(args.source, "scripts/gpu_bundle.sh"), "--emulated", "--build",
                        args.build, "--out", archive], check=True)
        script = ("python3 -m tarfile -e /tmp/bundle.tar.gz /tmp && "
                  "/tmp/gpu-bundle/run.sh --small --time-limit 3000 --out /results "
                  f"--only {','.join(STEPS)}")
        def run():
            return subprocess.run(["/bin/bash", "-c", script], env={"PATH": "/usr/bin:/bin"},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: enter(root))
        nvidia_smi = root / "usr/bin/nvidia-smi"
        nvidia_smi.write_text("#!/bin/bash\necho 535.104.05\n")
        nvidia_smi.chmod(0o755)
        refused = run()
        assert refused.returncode == 5, refused
        assert refused.stderr.count("\n") == 1, refused.stderr
        assert "driver 580 or newer (CUDA 13), found 535.104.05" in refused.stderr, refused.stderr
        nvidia_smi.unlink()
        done = run()
        print(done.stderr, file=sys.stderr)
        print(done.stdout)
        files = sorted((root / "results").iterdir())
        assert done.returncode == 0, f"run.sh ended with status {done.returncode}"
        assert [f.name for f in files] == ["gpu_suite.json", "gpu_suite.txt"], files
        assert all(f.stat().st_size < 16 << 20 for f in files)
        result = json.loads(files[0].read_text())
        paper = result["steps"]["long_context"]["paper"]["result"]["context"]
        # The library does not travel, and the result says what took its place.
        assert "own kernels (no cuBLASLt)" in paper["backend"], paper["backend"]
        assert list(result["steps"]) == STEPS, result["steps"].keys()
        for step in (result["steps"]["tests"], *result["steps"]["micro"].values()):
            assert step["status"] == "ok", step


if __name__ == "__main__":
    main()
