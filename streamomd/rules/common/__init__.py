"""Mathematics that several rules share: links, proximal steps, norm balls, schedules."""
