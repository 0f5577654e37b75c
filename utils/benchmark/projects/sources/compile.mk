$(out)/%@suffix@.o: %@suffix@
	$(@variable@) @flags@ $(own) -MMD -MP -c $< -o $@
