"""What files, folders and programs were like when we looked, and whether they still are so. Knows no tasks."""
