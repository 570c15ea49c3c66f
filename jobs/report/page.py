"""One HTML page with everything inside: it opens from a file, without a network."""

import base64
import html

STYLE = """
body { font-family: sans-serif; max-width: 75rem; margin: 1rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 0.6rem 0 1.4rem; }
td, th { border: 1px solid #bbb; padding: 0.25rem 0.6rem; text-align: right; }
th { background: #eee; } td:first-child, th:first-child { text-align: left; }
img { max-width: 100%; display: block; margin: 0.5rem 0; }
caption { text-align: left; padding: 0.3rem 0; color: #444; }
"""


def write_whole(file, data):
    """The file with this content, or, where there is no room for it, what was there before."""
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


class Page:
    def __init__(self, title):
        self.title = title
        self.parts = []

    def heading(self, text):
        self.parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text):
        self.parts.append(f"<p>{html.escape(text)}</p>")

    def table(self, header, rows, caption=""):
        cells = "".join(f"<th>{html.escape(str(name))}</th>" for name in header)
        lines = ["".join(f"<td>{html.escape(str(value))}</td>" for value in row) for row in rows]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        self.parts.append(f"<table><caption>{html.escape(caption)}</caption><tr>{cells}</tr>{body}</table>")

    def picture(self, data, what):
        """data: the bytes of a PNG file."""
        self.parts.append(f'<img alt="{html.escape(what)}" src="data:image/png;base64,{base64.b64encode(data).decode()}">')

    def write(self, file):
        write_whole(file, (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f"<style>{STYLE}</style></head><body><h1>{html.escape(self.title)}</h1>\n" + "\n".join(self.parts) + "\n</body></html>\n"
        ).encode())
