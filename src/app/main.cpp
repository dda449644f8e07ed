#include "app/commands.h"

int main(int argc, char** argv) {
  return triforce::run_program(std::vector<std::string>(argv, argv + argc));
}
