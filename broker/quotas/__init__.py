"""How much each user, client and address may ask of a broker."""
