"""The captures in an archive, one after another, each with its counters: nothing is unpacked to disk.

A tar is read twice: its names say which counters belong to which capture, then what is needed is taken as it comes.
"""

import tarfile
import zipfile

from cctrace.corpus.inputs import taken
from cctrace.errors import FormatError
from cctrace.io import archive
from cctrace.io.compression import bomb, most_bytes
from cctrace.io.source import Member, open_source

MOST = 4 << 30  # bytes of one member, as stored


def groups(name, rules, limit):
    """Yield (name, function that returns source and counters) for every capture in an archive.

    Parameters
    ----------
    name : str
        Path or URL of the archive.
    rules : Rules
        Which counters belong to which capture; what is no capture's is analysed by itself.
    limit : int, optional
        Largest size that a member may have.

    Raises
    ------
    FormatError
        If it is no archive, or is damaged: after what precedes the damage.
    """
    with open_source(name, limit) as source:
        if not archive.sniff(source.head):
            raise FormatError(f"{name}: neither a tar nor a ZIP archive, as its name says")
        if source.head.startswith(b"PK\3\4"):
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


def _names(source):
    """Return the names of the files in a tar, and what is wrong with it ("" nothing)."""
    found = {}
    try:
        with tarfile.open(fileobj=source, mode="r|") as tar:
            for info in tar:
                if info.isfile() and info.size:
                    found[info.name] = None
    except archive.DAMAGE as error:
        return list(found), " ".join(str(error).split()) or type(error).__name__
    return list(found), source.cut or ""


def _joined(names, rules):
    folders: dict[str, list] = {}
    for name in names:
        folder, slash, base = name.rpartition("/")
        folders.setdefault(folder + slash, []).append(base)
    return {
        folder + capture: [folder + one for one in counters]
        for folder, there in folders.items()
        for capture, counters in rules.join(there).items()
    }


def _tarred(name, names, joined, limit):
    """Yield what is complete as soon as it is; what waits for its counters, or a capture, is held as stored."""
    wanted = {one for counters in joined.values() for one in counters}
    held: dict[str, Member] = {}
    with open_source(name, limit) as source, tarfile.open(fileobj=source, mode="r|") as tar:
        left = set(names)
        try:
            for info in tar:
                if info.name not in left or not (info.isfile() and info.size):
                    continue
                left.discard(info.name)
                if info.size > (limit or MOST):
                    yield f"{name}:{info.name}", _too_large(name, info.name, info.size)
                    continue
                held[info.name] = Member(f"{name}:{info.name}", tar.extractfile(info).read())
                if info.name not in wanted and info.name not in joined:
                    member = held.pop(info.name)
                    yield member.name, lambda member=member: (member, [])
                    continue
                for capture in [one for one, counters in joined.items() if info.name in (one, *counters)]:
                    counters = joined[capture]
                    if capture in held and all(one in held for one in counters):
                        del joined[capture]
                        member, beside = held.pop(capture), [held[one] for one in counters]
                        yield member.name, lambda member=member, beside=beside: (member, beside)
        except archive.DAMAGE:
            return  # told by whoever read the names


def _too_large(name, member, size):
    def refuse():
        raise FormatError(f"{name}:{member}: {size} bytes; raise the limit if that is right (limit=, --limit)")

    return refuse


def _zipped(name, source, rules, limit):
    import io

    try:
        with zipfile.ZipFile(io.BytesIO(source.rest())) as zipped:
            infos = {info.filename: info for info in zipped.infolist() if not info.is_dir() and info.file_size}
            joined = _joined(list(infos), rules)
            wanted = {one for counters in joined.values() for one in counters}
            for one in taken(infos):
                if one not in wanted:
                    yield (
                        f"{name}:{one}",
                        lambda one=one: _unzipped(name, zipped, infos, [one, *joined.get(one, [])], limit),
                    )
    except archive.ZIP_DAMAGE as error:
        raise FormatError(f"{name}: a ZIP archive that cannot be read: {error}") from None


def _unzipped(name, zipped, infos, wanted, limit):
    members = []
    for one in wanted:
        info = infos[one]
        most = limit or most_bytes(info.compress_size)
        if info.file_size > most:
            raise FormatError(bomb(f"{name}:{one}", info.compress_size, most))
        try:
            members.append(Member(f"{name}:{one}", zipped.read(info)))
        except archive.ZIP_DAMAGE as error:
            raise FormatError(f"{name}:{one}: cannot be unpacked: {error}") from None
    return members[0], members[1:]
