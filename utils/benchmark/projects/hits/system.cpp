// A file with no header of its own: what it depends on are some 800 facts about the system's, most of them absences.

#include <map>
#include <string>
#include <vector>

using Lists = std::map<std::string, std::vector<int>>;

int sum_all(const Lists &lists) {
	int sum = 0;

	for (const auto &list : lists)
		for (int number : list.second)
			sum += number;
	return sum;
}
