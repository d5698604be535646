"""Compiles the broker's hot modules with mypyc when a wheel is built, where there is a C compiler, and the few in C.

The modules stay plain Python: without a compiler, in an editable install or with HEADRACE_NATIVE=0 they are
interpreted, and do the same at 0.6 to 0.8 of the speed. What is written in C has a twin in Python, which does the
same: the walk over produced records at a hundredth of the speed, so that bulk produce is far slower without it.
HEADRACE_NATIVE=1 makes a failed compilation an error.

Compiling takes a minute, so the libraries are kept in the cache directory under a hash of all that they are made of.
"""

import glob
import hashlib
import os
import runpy
import shlex
import shutil
import sys
import sysconfig
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version as installed_version
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What a profile of produce, fetch, commit and rebalance shows. Classes that tests or users subclass stay out.
HOT = (
    "protocol/{api_keys,error_codes,wire,batch,framing,produce,fetch,messages,message_reader,message_writer,records,record_spans}",
    "protocol/{offset_commit,record_bytes,zigzag}",
    "protocol/zookeeper/{acl,answers,codes,jute,paths,requests,stat}",
    "log/{append_set,appender,flush_state,segment,sparse_index,reader,producer_state,partition_log,log_writer,admission}",
    "coordinator/{group_records,groups,group_shard,group_table,deadlines,journal,placing,member_budget}",
    "coordinator/{shards,shard_journal}",
    "coordinator/classic/{group,facts,line,state,members,effects,steps}",
    "coordinator/consumer/{groups,state,table,writing,assignors,records,journal,reconciliation,target_assignment}",
    "coordinator/consumer/{subscription_counts}",
    "coordinator/offsets/{store,requests,owners}",
    "core/{file_slice,steps}",
    "net/{reactor,traffic,transport,outbox}",
    "broker/{client_session,connection,router,server,purgatory,partition,fetch_sessions,node,metrics,api,internal_topics}",
    "broker/{parts,quotas,rights,turn_clock}",
    "broker/{journal_reader}",
    "broker/handlers/{produce,produce_slowly,produce_wait,fetch,one_fetch}",
    "broker/handlers/{offset_commit,offset_topics,commit_slices,soon,consumer_group_heartbeat}",
    "keeper/{acl,connection,deciding,latency,log_writer,machine,node,peers,quota,reading,server,sessions}",
    "keeper/{snapshot,snapshotting,transactions,tree,txn_log,watches,watching,znode}",
)
C_MODULES = ("protocol/_record_walk",)  # each beside its twin, and with its types in a .pyi
LAYERS = (
    "broker",
    "keeper",
    "coordinator",
    "log",
    "net",
    "protocol",
    "core",
)  # where they are, and whose types they are compiled with
KEPT_MAX = 4  # sets of libraries in the cache
SAY_EVERY = 10  # files
GROUP = "headrace"  # one library for all, so that a call from one module to another is a C call


class NativeModules(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("HEADRACE_NATIVE", "auto")
        if version == "editable" or self.target_name != "wheel" or wanted == "0":
            return
        if wanted != "1" and not _has_compiler():
            self.app.display_warning("no C compiler: the hot modules stay interpreted")
            return
        try:
            libraries = _kept(self.root) or _compile(self.root)
        except Exception as error:
            if wanted == "1":
                raise
            self.app.display_warning(f"mypyc could not compile the hot modules ({error}); they stay interpreted")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(libraries)


def _has_compiler() -> bool:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    headers = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    return shutil.which(compiler) is not None and os.path.exists(headers)


def _sources() -> list[str]:
    found = []
    for pattern in HOT:
        package, names = pattern.rsplit("/", 1)
        found += [f"src/headrace/{package}/{name}.py" for name in names.strip("{}").split(",")]
    return found


def _say(text: str) -> None:
    print(f"headrace: {text}", file=sys.stderr, flush=True)


def _cache(root: str) -> str:
    """Where the libraries of this source are kept, for this Python and this mypyc."""
    directory = runpy.run_path(f"{root}/src/headrace/core/cache_directory.py")["cache_directory"]()
    digest = hashlib.sha256(f"{sys.version} {sysconfig.get_platform()} {installed_version('mypy')}".encode())
    files = [f"{root}/hatch_build.py"]
    for layer in LAYERS:
        for suffix in ("py", "pyi", "c"):
            files += glob.glob(f"{root}/src/headrace/{layer}/**/*.{suffix}", recursive=True)
    for path in sorted(files):
        with open(path, "rb") as file:
            digest.update(os.path.relpath(path, root).encode() + b"\0" + file.read() + b"\0")
    return os.path.join(directory, "native", digest.hexdigest()[:24])


def _kept(root: str) -> dict[str, str]:
    """Empty when there are none of this source."""
    directory = _cache(root)
    if not os.path.isdir(directory):
        return {}
    _say("the compiled modules of this source are at hand")
    os.utime(directory)
    return _libraries(directory)


def _keep(root: str, built: str) -> None:
    directory = _cache(root)
    parent = os.path.dirname(directory)
    try:
        os.makedirs(parent, exist_ok=True)
        others = sorted((entry for entry in os.scandir(parent)), key=lambda entry: -entry.stat().st_mtime)
        for entry in others[KEPT_MAX - 1 :]:
            shutil.rmtree(entry.path, ignore_errors=True)
        work = tempfile.mkdtemp(prefix=".keeping-", dir=parent)
        shutil.copytree(built, work, dirs_exist_ok=True)
        os.rename(work, directory)
    except OSError as error:
        _say(f"the compiled modules are not kept for the next build: {error}")


def _libraries(directory: str) -> dict[str, str]:
    """Their paths, each with the place in the wheel that it goes to."""
    found = glob.glob(f"{directory}/**/*.so", recursive=True)
    return {path: os.path.relpath(path, directory) for path in found}


def _compile(root: str) -> dict[str, str]:
    from mypyc.build import mypycify
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    work = tempfile.mkdtemp(prefix="headrace-native-")
    before = os.getcwd()
    os.chdir(root)
    try:
        # The strict checks are `make lint`'s; here the packages that types come from need not be installed.
        options = ["--config-file=", "--ignore-missing-imports", f"--cache-dir={work}/mypy"]
        _say(f"compiling {len(_sources())} hot modules: from Python to C, about half a minute")
        extensions = mypycify(
            [*options, *_sources()], opt_level="2", multi_file=True, group_name=GROUP, target_dir=f"{work}/c"
        )

        for name in C_MODULES:
            source = f"src/headrace/{name}.c"
            module = f"headrace.{name.replace('/', '.')}"
            extensions.append(Extension(module, [source], extra_compile_args=["-O2", "-Wall"]))

        class BuildOnAllCores(build_ext):
            """distutils compiles the files of a library one after the other; nearly all of ours are in one."""

            def build_extensions(self) -> None:
                compile_some = self.compiler.compile
                lock, done = threading.Lock(), 0

                def compile_each(sources: list[str], **options: Any) -> list[str]:
                    def compile_one(source: str) -> list[str]:
                        nonlocal done
                        objects: list[str] = compile_some([source], **options)
                        with lock:
                            done += 1
                            if done % SAY_EVERY == 0:
                                _say(f"compiling C: {done} files")
                        return objects

                    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                        return [path for paths in pool.map(compile_one, sources) for path in paths]

                self.compiler.compile = compile_each
                super().build_extensions()

        command = BuildOnAllCores(Distribution({"name": "headrace", "ext_modules": extensions}))
        command.build_lib, command.build_temp = f"{work}/lib", f"{work}/o"
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    _keep(root, f"{work}/lib")
    return _libraries(f"{work}/lib")
