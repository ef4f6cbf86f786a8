"""Prints what pyproject.toml requires, a line each: the dependencies, and those of the extras that are named."""

import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
for requirement in project["dependencies"]:
    print(requirement)
for extra in sys.argv[1:]:
    for requirement in project["optional-dependencies"][extra]:
        print(requirement)
