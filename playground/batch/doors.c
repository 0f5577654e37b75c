int doors(void)
{
	return 1;
}
