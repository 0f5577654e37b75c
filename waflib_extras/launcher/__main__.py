"""``python -m waflib_extras.launcher``: the ``waf`` command with this interpreter."""

# not a relative import: Waf's "distcheck" runs this file once more by its path
from waflib_extras import launcher

launcher.main()
