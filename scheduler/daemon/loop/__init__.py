"""asyncio around the machine: informers, binds, deadlines, retries, start and stop. It decides nothing."""
