// Source @number@: a container with three indices, a tree that becomes JSON, and a timer.
namespace part_@number@ {

namespace index = boost::multi_index;

struct Entry {
	std::string name;
	int weight;
	std::size_t place;
};

using Entries = boost::multi_index_container<
	Entry, index::indexed_by<
		index::ordered_unique<index::member<Entry, std::string, &Entry::name>>,
		index::hashed_non_unique<index::member<Entry, int, &Entry::weight>>, index::sequenced<>>>;

std::string describe(const std::string &text) {
	std::vector<std::string> words;
	boost::split(words, text, boost::is_any_of(", "), boost::token_compress_on);
	Entries entries;
	for (auto &word : words) {
		boost::to_lower(word);
		entries.insert(Entry{word, static_cast<int>(word.size()) + @number@, entries.size()});
	}
	boost::property_tree::ptree tree;
	for (const auto &entry : entries.get<1>()) {
		tree.put("part_@number@." + entry.name, boost::lexical_cast<std::string>(entry.weight));
	}
	std::ostringstream out;
	boost::property_tree::write_json(out, tree);
	return out.str();
}

void wait(boost::asio::io_context &context, const std::function<void(int)> &done) {
	auto timer = std::make_shared<boost::asio::steady_timer>(context, std::chrono::milliseconds(@number@));
	timer->async_wait([timer, done](const boost::system::error_code &error) { done(error ? -1 : @number@); });
}

} // namespace part_@number@
