// Atomics on shared and global memory. A fiber gives way only at collectives, so a plain
// read-modify-write is atomic within a launch. Each returns the old value.
#pragma once

#include <cstdint>

template <class T>
T atomicExch(T* address, T value) {
  const T old = *address;
  *address = value;
  return old;
}

template <class T>
T atomicAdd(T* address, T value) {
  return atomicExch(address, static_cast<T>(*address + value));
}

template <class T>
T atomicMax(T* address, T value) {
  return atomicExch(address, *address > value ? *address : value);
}

template <class T>
T atomicMin(T* address, T value) {
  return atomicExch(address, *address < value ? *address : value);
}

template <class T>
T atomicOr(T* address, T value) {
  return atomicExch(address, static_cast<T>(*address | value));
}

template <class T>
T atomicAnd(T* address, T value) {
  return atomicExch(address, static_cast<T>(*address & value));
}

template <class T>
T atomicCAS(T* address, T compare, T value) {
  return atomicExch(address, *address == compare ? value : *address);
}
