"""What files, folders and programs are like, and whether they have changed. It knows no tasks."""
