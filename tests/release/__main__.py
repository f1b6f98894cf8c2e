"""
`python -m tests.release version|build|lock|audit`: the commands behind the Makefile's menu.

Exit code: 0, 1 if the audit found something, 2 on bad input.
"""

import argparse
import sys
from pathlib import Path

from tests.release.artifacts import Image, build_release
from tests.release.audit import audit
from tests.release.changelog import close_unreleased
from tests.release.checkout import ROOT, ReleaseError
from tests.release.locks import write_locks
from tests.release.versions import checked, set_version


def main(argv: list[str]) -> int:
    """Run a command and return its exit code."""
    options = _options(argv)
    try:
        match options.command:
            case "version":
                _set_version(options.root, options.version, options.chart_version)
            case "build":
                image = Image.of(options.image, options.image_digest)
                version = checked("VERSION", options.version)
                for line in build_release(options.root, version, image):
                    print(line)
            case "lock":
                write_locks(options.root, options.arguments)
            case _:
                return audit(options.root, is_strict=options.strict)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: found {error.strerror}, expected a file of the checkout", file=sys.stderr)
        return 2
    return 0


def _set_version(root: Path, version: str, of_chart: str) -> None:
    checked("VERSION", version)
    of_chart = checked("CHART_VERSION", of_chart) if of_chart else version
    changelog = root / "CHANGELOG.md"
    closed = close_unreleased(changelog.read_text(), version)
    for name in set_version(root, version, of_chart):
        print(f"{name}: version {version}")
    changelog.write_text(closed)
    print(f"CHANGELOG.md: what was unreleased is {version}")


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.release")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True)
    version = commands.add_parser(
        "version", help="set the version, and close the changelog's unreleased section"
    )
    version.add_argument("version")
    version.add_argument("--chart-version", default="", help="default: the program's")
    build = commands.add_parser("build", help="make every file of a release, in dist/VERSION")
    build.add_argument("version")
    build.add_argument("--image", default="", help="the image's repository (default: affinity-scheduler)")
    build.add_argument("--image-digest", default="", help="sha256:... of the image that was pushed")
    lock = commands.add_parser("lock", help="write the lock files")
    lock.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of uv, such as --upgrade")
    judge = commands.add_parser("audit", help="judge the locked dependencies")
    judge.add_argument("--strict", action="store_true", help="a check that cannot be made is a failure")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
