"""Every kind of picture comes out as RGB of eight bits; every kind of bad file as one clear line."""

import base64
import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tellapart.boost.data_url import data_url
from tellapart.data import open_data
from tellapart.data.decode import to_rgb
from tellapart.data.file_names import HEIC
from tellapart.data.pictures import BytesPicture, FilePicture
from tellapart.errors import PictureError
from tellapart.report.album import Album


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def pixel(data: bytes, at: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    image = BytesPicture(data, "x").image()
    assert image.mode == "RGB"
    return image.getpixel(at)


def reason(path: Path) -> str:
    with pytest.raises(PictureError) as caught:
        FilePicture(path).image()
    line = str(caught.value)
    assert line.startswith(f"{path}: ") and "\n" not in line
    return line.removeprefix(f"{path}: ")


def test_key_is_of_the_content(tmp_path: Path) -> None:
    data = encoded(Image.new("RGB", (4, 4), "red"), "PNG")
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(data)
    first, second = FilePicture(tmp_path / "a.png"), FilePicture(tmp_path / "b.png")
    assert first.key() == second.key() == BytesPicture(data, "z").key()
    assert len(first.key()) == 32
    before = first.key()
    (tmp_path / "a.png").write_bytes(encoded(Image.new("RGB", (4, 4), "blue"), "PNG"))
    os.utime(tmp_path / "a.png", ns=(1, 1))
    assert first.key() != before


def test_exif_orientation() -> None:
    image = Image.new("RGB", (2, 4), "white")
    image.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    data = encoded(image, "PNG", exif=exif)
    assert BytesPicture(data, "x").image().size == (4, 2)
    assert pixel(data, (3, 0)) == (255, 0, 0)


def test_cmyk() -> None:
    assert pixel(encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")) == (255, 255, 255)
    red, green, blue = pixel(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"))
    assert red > 200 and green < 60 and blue < 60


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bit_grey_is_scaled_not_clipped(format: str) -> None:
    grey_HW = np.array([[0, 257 * 100, 65535]], dtype=np.uint16)
    data = encoded(Image.fromarray(grey_HW), format)
    assert [pixel(data, (x, 0))[0] for x in range(3)] == [0, 100, 255]


def test_float_grey() -> None:
    grey_HW = np.array([[0.0, 0.5, 1.0]], dtype=np.float32)
    assert [pixel(encoded(Image.fromarray(grey_HW), "TIFF"), (x, 0))[0] for x in range(3)] == [0, 128, 255]


def test_transparency_is_laid_on_white() -> None:
    assert pixel(encoded(Image.new("RGBA", (2, 2), (255, 0, 0, 0)), "PNG")) == (255, 255, 255)
    assert pixel(encoded(Image.new("LA", (2, 2), (0, 0)), "PNG")) == (255, 255, 255)
    palette = Image.new("P", (2, 2), 0)
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 1), 1)
    data = encoded(palette, "PNG", transparency=0)
    assert (pixel(data), pixel(data, (1, 1))) == ((255, 255, 255), (40, 50, 60))


def test_animation_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    for format in ("GIF", "PNG", "WEBP"):
        options = {"lossless": True} if format == "WEBP" else {}
        data = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
        assert pixel(data) == (255, 0, 0), format


def test_one_pixel() -> None:
    image = BytesPicture(encoded(Image.new("1", (1, 1), 1), "PNG"), "x").image()
    assert (image.size, image.getpixel((0, 0))) == ((1, 1), (255, 255, 255))


def test_text_named_jpg(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("<html>not found</html>")
    assert reason(tmp_path / "a.jpg").startswith("not a supported picture format (a text file: '<html>")


def test_truncated_jpeg_and_png(tmp_path: Path) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    for format, name in (("JPEG", "a.jpg"), ("PNG", "a.png")):
        data = encoded(noise, format)
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        assert reason(tmp_path / name) == "truncated (the file ends before the picture does)"
        (tmp_path / name).write_bytes(data[:16])
        assert "damaged header" in reason(tmp_path / name) or "truncated" in reason(tmp_path / name)


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").write_bytes(b"")
    assert reason(tmp_path / "empty.jpg") == "empty file"
    assert reason(tmp_path / "none.jpg") == "no such file"
    (tmp_path / "folder.jpg").mkdir()
    assert reason(tmp_path / "folder.jpg") == "is a folder, not a picture"
    os.mkfifo(tmp_path / "pipe.jpg")
    assert reason(tmp_path / "pipe.jpg") == "not a regular file"
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    assert reason(tmp_path / "loop.jpg") == "symbolic link loop"


def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    (tmp_path / "a.jpg").chmod(0)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)  # root may read everything
    try:
        assert reason(tmp_path / "a.jpg") == "permission denied"
    finally:
        if was_root:
            os.seteuid(0)


def test_decompression_bomb(tmp_path: Path) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)))
    assert "decompression bomb" in reason(tmp_path / "a.png")


def test_formats_that_start_other_programs_stay_shut(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    assert "PDF or PostScript" in reason(tmp_path / "a.jpg")


def test_heic_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\0\0\0\x18ftypheic" + b"\0" * 40)
    told = (
        "damaged HEIC file"
        if HEIC
        else "not a supported picture format (HEIC: convert it to JPEG or PNG, or run: pip install 'tellapart[heic]')"
    )
    assert reason(tmp_path / "a.jpg") == told


def test_heic_is_read_with_its_extra(tmp_path: Path) -> None:
    """As a phone writes it: the orientation is in its EXIF."""
    heif = pytest.importorskip("pillow_heif")
    drawn = Image.new("RGB", (64, 32), (200, 30, 30))
    drawn.paste((30, 30, 200), (32, 0, 64, 32))
    heif.from_pillow(drawn).save(tmp_path / "IMG_1.HEIC", quality=95)
    (item,) = open_data(str(tmp_path))
    image = item.picture.image()
    assert image.size == (64, 32) and image.mode == "RGB"
    assert image.getpixel((5, 5))[0] > 150 and image.getpixel((60, 5))[2] > 150


@pytest.mark.filterwarnings("ignore::UserWarning")  # pytest undoes the filter of decode.py
def test_damage_anywhere_is_a_picture_error() -> None:
    random = np.random.default_rng(1)
    picture = Image.fromarray(random.integers(0, 255, (16, 16, 3), dtype=np.uint8))
    refused = 0
    for format in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"):
        good = encoded(picture, format)
        for _ in range(60):
            data = bytearray(good)
            for place in random.integers(0, len(data), 6):
                data[place] = random.integers(0, 256)
            try:
                assert BytesPicture(bytes(data), "x").image().mode == "RGB"
            except PictureError as error:
                assert str(error).startswith("x: ") and "\n" not in str(error)
                refused += 1
    assert refused > 60


def test_an_opened_picture_is_read_as_its_file_is(tmp_path: Path) -> None:
    turned, deep = Image.Exif(), np.arange(0, 65536, 4096, dtype=np.uint16).reshape(4, 4)
    turned[0x0112] = 6
    Image.new("RGB", (2, 4), "red").save(tmp_path / "turned.png", exif=turned)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    for file in tmp_path.iterdir():
        opened, read = to_rgb(Image.open(file)), FilePicture(file).image()
        assert (opened.size, opened.tobytes()) == (read.size, read.tobytes()), file.name
    assert to_rgb(to_rgb(Image.open(tmp_path / "turned.png"))).size == (4, 2)


def test_a_page_shows_pictures_as_models_see_them(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.new("RGB", (8, 8), "red").save(tmp_path / "tRNS.png", transparency=(255, 0, 0))
    album = Album()
    for name in ("clear.png", "tRNS.png"):
        album.add(tmp_path, name)
        sent = data_url(FilePicture(tmp_path / name))
        for uri in (sent, album.sprites()[-1].uri):  # to servers and browsers that drop transparency
            shown = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")
            assert shown.getpixel((0, 0)) == (255, 255, 255)
