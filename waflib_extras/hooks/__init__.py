"""What was Waf's own, and what replaces it. No other room replaces something of Waf's."""
