// A file with no header of its own: what it depends on are some 800 facts of the system's.

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

std::map<std::string, std::vector<int>> sort_all(std::map<std::string, std::vector<int>> lists) {
	for (auto &list : lists)
		std::sort(list.second.begin(), list.second.end());
	return lists;
}

void print_all(const std::map<std::string, std::vector<int>> &lists) {
	for (const auto &list : lists)
		std::cout << list.first << ": " << list.second.size() << "\n";
}
