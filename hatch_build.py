"""Compiles the broker's hot modules with mypyc when a wheel is built, where there is a C compiler.

The modules stay plain Python: without a compiler, in an editable install or with HEADRACE_NATIVE=0 they are
interpreted, and do the same at 0.6 to 0.8 of the speed. HEADRACE_NATIVE=1 makes a failed compilation an error.
"""

import glob
import os
import shlex
import shutil
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What a profile of produce, fetch, commit and rebalance shows. Classes that tests or users subclass stay out.
HOT = (
    "protocol/{error_codes,wire,batch,framing,produce,fetch,messages,message_reader,message_writer,records,record_spans}",
    "protocol/{offset_commit}",
    "log/{group,segment,sparse_index,reader,producer_state,partition_log,group_writer,admission}",
    "coordinator/{record_bytes,group_records,offset_store,offset_requests,group_offsets,groups,group_table,deadlines}",
    "coordinator/{classic_group,group_facts,group_state,group_members,group_effects,journal}",
    "coordinator/{consumer_groups,consumer_group_state,consumer_group_table,consumer_group_writing,assignors}",
    "coordinator/{consumer_group_records,consumer_group_journal,member_reconciliation,target_assignment,placing}",
    "broker/{reactor,connection,outbox,router,server,purgatory,partition,fetch_sessions,node,metrics,api,internal_topics}",
    "broker/handlers/{produce,fetch,offset_commit,offset_topics,soon,consumer_group_heartbeat}",
)
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
            libraries = _compile(self.root)
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


def _compile(root: str) -> dict[str, str]:
    """The libraries by their path, each with the place in the wheel that it goes to."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    work = tempfile.mkdtemp(prefix="headrace-native-")
    before = os.getcwd()
    os.chdir(root)
    try:
        # The strict checks are `make lint`'s; here the packages that types come from need not be installed.
        options = ["--config-file=", "--ignore-missing-imports", f"--cache-dir={work}/mypy"]
        extensions = mypycify(
            [*options, *_sources()], opt_level="2", multi_file=True, group_name=GROUP, target_dir=f"{work}/c"
        )

        class BuildOnAllCores(build_ext):
            """distutils compiles the files of a library one after the other; nearly all of ours are in one."""

            def build_extensions(self) -> None:
                compile_some = self.compiler.compile

                def compile_each(sources: list[str], **options: Any) -> list[str]:
                    with ThreadPoolExecutor(os.cpu_count()) as pool:
                        made = pool.map(lambda source: compile_some([source], **options), sources)
                        return [path for paths in made for path in paths]

                self.compiler.compile = compile_each
                super().build_extensions()

        command = BuildOnAllCores(Distribution({"name": "headrace", "ext_modules": extensions}))
        command.build_lib, command.build_temp = f"{work}/lib", f"{work}/o"
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    return {path: os.path.relpath(path, f"{work}/lib") for path in glob.glob(f"{work}/lib/**/*.so", recursive=True)}
