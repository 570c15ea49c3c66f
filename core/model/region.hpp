#pragma once

#include "core/types/region.hpp"
