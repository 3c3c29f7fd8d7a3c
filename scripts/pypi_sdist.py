"""Fetches the sources of one exact, hash-checked PyPI release.

usage: pypi_sdist.py PACKAGE VERSION SHA256 FOLDER    (unpacks into FOLDER)
"""

import sys
import tarfile

import pypi


def main():
    package, version, sha256, folder = sys.argv[1:]
    with pypi.scratch_folder() as scratch:
        archive = pypi.download(package, version, sha256, scratch, is_sdist=True)
        with tarfile.open(archive, "r:gz") as members:
            members.extractall(folder, filter="data")


if __name__ == "__main__":
    try:
        main()
    except pypi.FetchError as error:
        sys.exit(str(error))
