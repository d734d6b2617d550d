"""Operations on a deployed stack: scale, update, delete."""
