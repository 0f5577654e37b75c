"""The site of the book: `./waf book` builds it from the Markdown files of this folder."""

import os
import runpy

HERE = os.path.dirname(os.path.abspath(__file__))

project = "waflib-extras"
author = "The waflib-extras authors"
copyright = author
version = release = runpy.run_path(os.path.join(HERE, "..", "waflib_extras", "version.py"))["VERSION"]

extensions = ["myst_parser"]
exclude_patterns = ["requirements.txt"]
myst_heading_anchors = 4
highlight_language = "none"

html_theme = "furo"
html_title = "waflib-extras %s" % version
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
# a page that was opened from the disk may not read the others, as a search would to show where the word is
html_show_search_summary = False
