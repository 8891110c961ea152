"""The entry point of the container: `executor` runs an executor of Spark on Kubernetes, all else is `tidegate`.

Spark starts the containers of its executors with the argument `executor`, and describes the executor in variables of
the environment.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def executor(environment: Mapping[str, str], jars: Path) -> list[str]:
    """Return the command of an executor. Raises `SystemExit` with a message if a variable is missing."""
    missing = [name for name in (*ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY") if not environment.get(name)]
    if missing:
        raise SystemExit(f"executor: Spark on Kubernetes sets {', '.join(missing)}, and they are not set")
    names = sorted((name for name in environment if re.fullmatch(r"SPARK_JAVA_OPT_\d+", name)), key=_number)
    paths = (
        environment.get("SPARK_CONF_DIR"),
        environment.get("SPARK_CLASSPATH"),
        environment.get("SPARK_EXTRA_CLASSPATH"),
        str(jars / "*"),
    )
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    java = Path(environment["JAVA_HOME"]) / "bin" / "java" if environment.get("JAVA_HOME") else "java"
    return [
        str(java),
        *(environment[name] for name in names),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        *("-cp", os.pathsep.join(filter(None, paths))),
        BACKEND,
        *(word for option, name in ARGUMENTS.items() for word in (option, environment[name])),
    ]


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def main(arguments: list[str]) -> None:
    """Replace this process by the one that the arguments ask for."""
    if arguments[:1] == ["executor"]:
        import pyspark

        home = Path(pyspark.__file__).parent
        os.environ.setdefault("SPARK_HOME", str(home))
        command = executor(os.environ, home / "jars")
    else:
        command = [str(Path(sys.executable).with_name("tidegate")), *arguments]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
