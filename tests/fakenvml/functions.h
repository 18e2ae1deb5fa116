/* Every function the fake exports, in the order of its records in the control
 * file. control.py reads this list too: one line, one function. */
#ifndef FAKE_FUNCTIONS_H
#define FAKE_FUNCTIONS_H

#define FAKE_FUNCTIONS(X) \
    X(nvmlInit) \
    X(nvmlInit_v2) \
    X(nvmlInitWithFlags) \
    X(nvmlShutdown) \
    X(nvmlSystemGetDriverVersion) \
    X(nvmlSystemGetNVMLVersion) \
    X(nvmlSystemGetCudaDriverVersion) \
    X(nvmlSystemGetCudaDriverVersion_v2) \
    X(nvmlSystemGetProcessName) \
    X(nvmlDeviceGetCount) \
    X(nvmlDeviceGetCount_v2) \
    X(nvmlDeviceGetHandleByIndex) \
    X(nvmlDeviceGetHandleByIndex_v2) \
    X(nvmlDeviceGetHandleByUUID) \
    X(nvmlDeviceGetHandleByPciBusId) \
    X(nvmlDeviceGetHandleByPciBusId_v2) \
    X(nvmlDeviceGetIndex) \
    X(nvmlDeviceGetMinorNumber) \
    X(nvmlDeviceGetName) \
    X(nvmlDeviceGetUUID) \
    X(nvmlDeviceGetSerial) \
    X(nvmlDeviceGetPciInfo) \
    X(nvmlDeviceGetPciInfo_v3) \
    X(nvmlDeviceGetMemoryInfo) \
    X(nvmlDeviceGetMemoryInfo_v2) \
    X(nvmlDeviceGetBAR1MemoryInfo) \
    X(nvmlDeviceGetUtilizationRates) \
    X(nvmlDeviceGetSamples) \
    X(nvmlDeviceGetPowerUsage) \
    X(nvmlDeviceGetPowerManagementLimit) \
    X(nvmlDeviceGetEnforcedPowerLimit) \
    X(nvmlDeviceGetTotalEnergyConsumption) \
    X(nvmlDeviceGetTemperature) \
    X(nvmlDeviceGetTemperatureV) \
    X(nvmlDeviceGetClockInfo) \
    X(nvmlDeviceGetMaxClockInfo) \
    X(nvmlDeviceGetFanSpeed) \
    X(nvmlDeviceGetComputeRunningProcesses) \
    X(nvmlDeviceGetComputeRunningProcesses_v2) \
    X(nvmlDeviceGetComputeRunningProcesses_v3) \
    X(nvmlDeviceGetGraphicsRunningProcesses) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3) \
    X(nvmlDeviceGetProcessUtilization) \
    X(nvmlDeviceGetMigMode) \
    X(nvmlDeviceIsMigDeviceHandle) \
    X(nvmlDeviceGetMaxMigDeviceCount) \
    X(nvmlDeviceGetMigDeviceHandleByIndex) \
    X(nvmlDeviceGetGpuInstanceId) \
    X(nvmlDeviceGetComputeInstanceId) \
    X(nvmlDeviceGetEncoderUtilization) \
    X(nvmlDeviceGetDecoderUtilization) \
    X(nvmlDeviceGetPcieThroughput) \
    X(nvmlDeviceGetFieldValues) \
    X(nvmlDeviceGetComputeMode) \
    X(nvmlDeviceGetPersistenceMode) \
    X(nvmlDeviceGetPerformanceState) \
    X(nvmlDeviceGetDisplayActive) \
    X(nvmlDeviceGetDisplayMode) \
    X(nvmlDeviceGetDriverModel) \
    X(nvmlDeviceGetDriverModel_v2) \
    X(nvmlDeviceGetTotalEccErrors) \
    X(nvmlDeviceGetCudaComputeCapability) \
    X(nvmlDeviceGetCurrentClocksEventReasons) \
    X(nvmlDeviceGetCurrentClocksThrottleReasons)

#endif
