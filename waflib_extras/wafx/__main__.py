"""``python -m waflib_extras.wafx``: the ``wafx`` command of this interpreter's installation."""

from waflib_extras import wafx

wafx.main()
