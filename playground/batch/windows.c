int windows(void)
{
	return 1;
}
