"""How tools take part in builds, and replace functions of Waf's. No other room replaces them by itself."""
