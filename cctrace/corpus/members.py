"""The captures in an archive, one after another, each with its counters: nothing is unpacked to disk.

A tar is read twice: the first pass lists its names, which say which counters belong to which capture; the second takes
the files as they come. Archives may hold several files of one name (`tar --append` writes a newer one behind the older
one): each is analysed, the second as `folder/(2)/name`, so that it finds its counters among the second files, too.

What comes out of an archive is bounded for all its members together, as `cctrace.io.archive` bounds it.
"""

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import IO, Any, cast

from cctrace.corpus.inputs import Rules, taken
from cctrace.errors import FormatError
from cctrace.io import archive
from cctrace.io.compression import Allowance, bomb, most_bytes
from cctrace.io.source import Member, Source, open_source

MOST = 4 << 30  # bytes of one member, as stored
Capture = tuple[str, Callable[[], tuple[Member, list[Member]]]]  # name, and what returns it and its counters


def groups(name: str, rules: Rules, limit: int | None) -> Iterator[Capture]:
    """Yield (name, function that returns source and counters) for every capture in an archive.

    `name`: path or URL of the archive. `rules`: which counters belong to which capture; counters of no capture are
    analysed by themselves. `limit`: largest size that a member may have, and that all may have together. Raises
    `FormatError` if it is not an archive, is damaged, or unpacks to too much: after the captures before the damage.
    """
    with open_source(name, limit) as source:
        if not archive.sniff(source.head):
            raise FormatError(f"{name}: neither a tar nor a ZIP archive, as its name says")
        if archive.is_zip(source.head):
            yield from _zipped(name, source, rules, limit)
            return
        names, damage = _names(source)
    if not names:
        raise FormatError(f"{name}: no files in the archive{damage and f' ({damage})'}")
    joined = _joined(names, rules)
    wanted = {*taken(names), *(one for counters in joined.values() for one in counters)}
    yield from _tarred(name, wanted, joined, limit)
    if damage:
        raise FormatError(f"{name}: the archive is damaged or cut short ({damage}); what precedes it was analysed")


def _distinct(infos: Iterable[Any], name_of: Callable[[Any], str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, info) of an archive's members under distinct names."""
    used: set[str] = set()
    for info in infos:
        name = first = name_of(info)
        number = 1
        while name in used:
            number += 1
            folder, slash, base = first.rpartition("/")
            name = f"{folder}{slash}({number})/{base}"
        used.add(name)
        yield name, info


def _files(tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    return _distinct((info for info in tar if info.isfile() and info.size), lambda info: info.name)


def _names(source: Source) -> tuple[list[str], str]:
    """Return the names of the files in a tar, and what is wrong with it ("" nothing)."""
    found: list[str] = []
    try:
        with tarfile.open(fileobj=cast(IO[bytes], source), mode="r|") as tar:
            found.extend(name for name, _ in _files(tar))
    except archive.DAMAGE as error:
        return found, " ".join(str(error).split()) or type(error).__name__
    return found, source.cut or ""


def _joined(names: Iterable[str], rules: Rules) -> dict[str, list[str]]:
    folders: dict[str, list[str]] = {}
    for name in names:
        folder, slash, base = name.rpartition("/")
        folders.setdefault(folder + slash, []).append(base)
    return {
        folder + capture: [folder + one for one in counters]
        for folder, there in folders.items()
        for capture, counters in rules.join(there).items()
    }


def _tarred(name: str, left: set[str], joined: dict[str, list[str]], limit: int | None) -> Iterator[Capture]:
    """Yield each capture as soon as it is complete; only those that wait for counters, and counters, are held."""
    counters = {one for names in joined.values() for one in names}
    waiting: dict[str, Member] = {}
    with open_source(name, limit) as source, tarfile.open(fileobj=cast(IO[bytes], source), mode="r|") as tar:
        allowance = Allowance(source)
        try:
            for one, info in _files(tar):
                if one not in left:
                    continue
                if info.size > (limit or MOST):
                    yield f"{name}:{one}", partial(_refuse, f"{name}:{one}", info.size)
                    continue
                allowance.add(info.size)
                waiting[one] = Member(f"{name}:{one}", archive.extracted(tar, info), allowance)
                if one not in counters and one not in joined:
                    yield _capture(waiting.pop(one), [])
                    continue
                for capture in [capture for capture, names in joined.items() if one in (capture, *names)]:
                    if capture in waiting and all(beside in waiting for beside in joined[capture]):
                        beside = [waiting[other] for other in joined.pop(capture)]
                        yield _capture(waiting.pop(capture), beside)
        except archive.DAMAGE:
            return  # `groups` knows of it from the first pass


def _capture(member: Member, counters: list[Member]) -> Capture:
    return member.name, lambda: (member, counters)


def _refuse(name: str, size: int) -> tuple[Member, list[Member]]:
    raise FormatError(f"{name}: {size} bytes; raise the limit if that is right (limit=, --limit)")


def _zipped(name: str, source: Source, rules: Rules, limit: int | None) -> Iterator[Capture]:
    try:
        with zipfile.ZipFile(io.BytesIO(source.rest())) as zipped:
            allowance = Allowance(source)
            files = (info for info in zipped.infolist() if not info.is_dir() and info.file_size)
            infos: dict[str, zipfile.ZipInfo] = dict(_distinct(files, lambda info: info.filename))
            joined = _joined(infos, rules)
            counters = {one for names in joined.values() for one in names}
            for one in taken(infos):
                allowance.add(0)  # refuses the rest once the allowance is spent
                if one not in counters:
                    wanted = {other: infos[other] for other in (one, *joined.get(one, ()))}
                    yield f"{name}:{one}", partial(_unzipped, name, zipped, wanted, allowance, limit)
    except archive.ZIP_DAMAGE as error:
        raise FormatError(f"{name}: a ZIP archive that cannot be read: {error}") from None


def _unzipped(
    name: str, zipped: zipfile.ZipFile, infos: dict[str, zipfile.ZipInfo], allowance: Allowance, limit: int | None
) -> tuple[Member, list[Member]]:
    members = []
    for one, info in infos.items():
        most = limit or most_bytes(info.compress_size)
        if info.file_size > most:
            raise FormatError(bomb(f"{name}:{one}", info.compress_size, most))
        allowance.add(info.file_size)
        try:
            members.append(Member(f"{name}:{one}", archive.unzipped(zipped, info), allowance))
        except archive.ZIP_DAMAGE as error:
            raise FormatError(f"{name}:{one}: cannot be unpacked: {error}") from None
    return members[0], members[1:]
