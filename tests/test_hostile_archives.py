"""Archives are bounded by their own size, over all that is nested in them, and by the number of their files."""

import contextlib
import gzip
import tarfile
import tracemalloc
import zipfile

import pytest
from wire import ethernet, ipv4, pcap, tar, tcp, zipped

import cctrace as cct
from cctrace.corpus import members
from cctrace.corpus.inputs import Rules
from cctrace.errors import FormatError
from cctrace.io import archive, read_file
from cctrace.io.compression import BOMB_FLOOR
from cctrace.io.source import open_source

CAPTURE = pcap([(10**18, ethernet(ipv4(tcp())))])


PACKERS = pytest.mark.parametrize("pack", [tar, zipped], ids=["tar", "zip"])


@PACKERS
def test_members_that_are_each_small_enough_are_too_much_together(pack, tmp_path):
    part = bytes(BOMB_FLOOR // 3)
    path = tmp_path / "bomb"
    path.write_bytes(pack([(f"{k}.pcap", part) for k in range(4)]))
    with pytest.raises(FormatError, match="decompression bomb"):
        read_file(path)


@PACKERS
def test_compressed_members_count_with_what_is_packed_in_them(pack, tmp_path):
    zeros = [(10**18, bytes(60_000))] * (BOMB_FLOOR // 180_000)
    part = gzip.compress(pcap([*zeros, (10**18, ethernet(ipv4(tcp())))]))
    path = tmp_path / "nested"
    path.write_bytes(pack([(f"{k}.pcap.gz", part) for k in range(4)]))
    with pytest.raises(FormatError, match=r"nested: \d+ compressed bytes unpack"):
        read_file(path)
    assert len(read_file(path, limit=8 * BOMB_FLOOR)) == 4


@PACKERS
def test_an_archive_of_very_many_files_is_refused(pack, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_MEMBERS", 20)
    path = tmp_path / "many"
    path.write_bytes(pack([(f"{k}.pcap", CAPTURE) for k in range(21)]))
    with pytest.raises(FormatError, match="more than 20 files"):
        read_file(path)
    path.write_bytes(pack([(f"{k}.pcap", CAPTURE) for k in range(20)]))
    assert len(read_file(path)) == 20


def test_a_tar_that_claims_a_sparse_file_of_a_terabyte_is_refused_before_it_is_read(tmp_path):
    info = tarfile.TarInfo("sparse.pcap")
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(1 << 40),
                        "GNU.sparse.map": "0,0", "GNU.sparse.numblocks": "1"}  # fmt: skip
    path = tmp_path / "sparse.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as packed:
        packed.addfile(info)
    with pytest.raises(FormatError, match="bomb"):
        read_file(path)


@pytest.mark.parametrize("at", range(0, 120, 3))
def test_a_damaged_zip_is_one_line(at, tmp_path):
    data = bytearray(zipped([("a.pcap", CAPTURE)]))
    data[-120 + at] ^= 0xFF
    path = tmp_path / "damaged.zip"
    path.write_bytes(data)
    with contextlib.suppress(FormatError):  # anything else is not one line
        assert len(read_file(path)) == 1


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_lies_about_its_sizes_unpacks_to_no_more_than_it_says(method, tmp_path):
    """Unpacked whole, what these few hundred bytes to 250 kB hold would be a quarter of a gigabyte."""
    path = tmp_path / "lie.zip"
    with zipfile.ZipFile(path, "w", method) as archive_file:
        archive_file.writestr("0.pcap", bytes(1 << 28))
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\1\2") + 24
    data[at : at + 4] = (1 << 20).to_bytes(4, "little")
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"lie.zip: a ZIP archive that cannot be read: Bad CRC-32"):
            read_file(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 27  # a step of LZMA unpacks to 28 MB, with copies
    finally:
        tracemalloc.stop()


def test_a_zip_that_says_it_is_a_bomb_is_refused_before_anything_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "unzipped", None)
    path = tmp_path / "bomb.zip"
    path.write_bytes(zipped([(f"{k}.pcap", bytes(BOMB_FLOOR // 3)) for k in range(4)]))
    with pytest.raises(FormatError, match="decompression bomb"):
        read_file(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_every_method_of_zip_is_unpacked(method, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive_file:
        archive_file.writestr("first.txt", "not a capture")
        archive_file.writestr("second.pcap", CAPTURE)
    assert len(read_file(tmp_path / "a.zip")) == 1


@PACKERS
def test_a_corpus_bounds_what_all_members_of_an_archive_unpack_to(pack, tmp_path):
    zeros = [(10**18, bytes(60_000))] * (BOMB_FLOOR // 180_000)
    part = gzip.compress(pcap([*zeros, (10**18, ethernet(ipv4(tcp())))]))
    path = tmp_path / ("nested.zip" if pack is zipped else "nested.tar.gz")
    path.write_bytes(pack([(f"{k}.pcap.gz", part) for k in range(9)]))
    read = 0
    with pytest.raises(FormatError, match="decompression bomb"):  # noqa: PT012 (some are read before)
        for _, load in members.groups(str(path), Rules(), None):
            with open_source(load()[0]) as source:
                source.rest()
            read += 1
    assert 0 < read < 9


@PACKERS
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_files_of_one_name_in_an_archive_are_all_analysed(pack, tmp_path):
    captures = [pcap([(10**18, ethernet(ipv4(tcp(sport=port))))]) for port in (1001, 1002, 1003)]
    path = tmp_path / ("twice.zip" if pack is zipped else "twice.tar.gz")
    path.write_bytes(pack([("a/x.pcap", one) for one in captures]))
    assert cct.corpus.run(path, tmp_path / "out", workers=1).captures == 3
    rows = cct.corpus.open(tmp_path / "out").flows.frame()
    assert dict(zip(rows["capture"].str.removeprefix(f"{path}:"), rows["sport"], strict=True)) == {
        "a/x.pcap": 1001,
        "a/(2)/x.pcap": 1002,
        "a/(3)/x.pcap": 1003,
    }
