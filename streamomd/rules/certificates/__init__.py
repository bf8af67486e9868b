"""Regret bounds and mistake bounds: the contract, and accounts that several rules share."""
