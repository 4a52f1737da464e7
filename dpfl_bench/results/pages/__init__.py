"""HTML pages in one file that open without a network.

| file | what it is |
|---|---|
| page.py | the page and its pieces; page.html is its frame: style, sorting, exports |
| inline_svg.py | a picture as a part of a page |
"""
