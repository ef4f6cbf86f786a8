"""What pyproject.toml cannot say: a `.pth` file belongs beside the packages, in a wheel and in an editable install.

Python runs such a file when an interpreter starts; `src/strandline_driver_python.py` tells what this one is for.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

START_FILE = Path("src/strandline_driver_python.pth")


class BuildWithStartFile(build_py):
    """An editable install takes modules from where they are, and only what lies in its wheel from there."""

    def run(self) -> None:
        super().run()
        folder = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.copy_file(str(START_FILE), str(Path(folder, START_FILE.name)))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib, START_FILE.name))]

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), str(START_FILE)]


setup(cmdclass={"build_py": BuildWithStartFile})
