"""Sign-in through an OpenID Connect provider: settings, the provider's keys, the flow of a browser, and who it is."""
